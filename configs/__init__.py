"""Settings: one schema, one loader, and the modes as data."""
