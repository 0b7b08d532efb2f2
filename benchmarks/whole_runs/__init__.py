"""Contests of whole training runs: each is the command that users type, trained once, measured once."""
