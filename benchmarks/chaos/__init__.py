"""Runs under fire: processes of them are killed, and what is left is judged."""
