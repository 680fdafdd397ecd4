"""What can be measured: one module for each wire or library, behind the protocols of `base`."""
