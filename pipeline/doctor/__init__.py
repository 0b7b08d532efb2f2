"""Whether this machine is fit, and why not."""
