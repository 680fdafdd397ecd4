"""How log lines look, in whichever process."""

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
