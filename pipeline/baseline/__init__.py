"""TRL's trainer on the same work."""
