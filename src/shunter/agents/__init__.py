"""Floor 1: one module per agent, a description without I/O. Standard library only, Python 3.9."""
