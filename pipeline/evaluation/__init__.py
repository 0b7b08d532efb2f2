"""pass@k before, after and during training, and by command."""
