"""Model architectures, one file each, found through `registry`."""
