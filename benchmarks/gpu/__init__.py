"""The battery of measurements for one GPU."""
