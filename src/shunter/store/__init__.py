"""Floor 5: home's database."""
