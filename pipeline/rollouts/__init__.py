"""Slot, draw, score, group, batch."""
