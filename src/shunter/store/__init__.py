"""Floor 5: the store. `open_store` is the way in; `contract.Store` says what it does."""
