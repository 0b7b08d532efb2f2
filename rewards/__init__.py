"""Turn completions into scores."""
