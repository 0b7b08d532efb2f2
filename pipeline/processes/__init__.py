"""One way to talk to another process: call, stream, cancel, kill, obituary; a local end and a Ray end."""
