"""Floor 4: pure decisions; `now` is an argument."""
