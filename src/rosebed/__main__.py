"""`python -m rosebed` is `rosebed`."""

from rosebed.cli import main

if __name__ == "__main__":
    main()
