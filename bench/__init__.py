"""Benchmarks: what a command, a turn and a byte cost, each beside the plain tool that does the same."""
