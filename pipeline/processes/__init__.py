"""One way to talk to another process: call, stream, kill; a local end and a Ray end."""
