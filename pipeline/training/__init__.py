"""One optimiser step, from samples to weights."""
