"""Floor 10: the command line. One command, one file, loaded when it is called."""
