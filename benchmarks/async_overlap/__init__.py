"""Four orders of the same work, run by the real loops over stages that sleep for recorded costs."""
