"""Floor 6: base capture, transfer repository, import of results, at home."""
