"""Floor 9: use cases; every face calls these."""
