"""This machine: files, limits, spans, signals, shares of cores and GPUs."""
