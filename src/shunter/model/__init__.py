"""Floor 3: records of home and their state tables. Pure."""
