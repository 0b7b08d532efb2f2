"""Ray: connect, reserve places, carry files."""
