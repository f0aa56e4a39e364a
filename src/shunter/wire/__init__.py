"""Floor 0: what home and host say to each other. Standard library only, Python 3.9, no I/O."""
