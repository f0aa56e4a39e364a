"""Long runs in which random things fail, with a table at the end: `make campaign PART=cuts ROUNDS=100 SEED=7`."""
