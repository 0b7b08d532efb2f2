"""What lives inside vLLM's processes."""
