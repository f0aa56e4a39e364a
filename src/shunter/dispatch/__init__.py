"""Floor 8: leadership, the loop, and the driver that takes one job through its steps."""
