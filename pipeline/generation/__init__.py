"""A generator: start it, talk to it, keep it alive."""
