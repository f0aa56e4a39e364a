"""Floor 7: configuration, transports to hosts, the typed host client."""
