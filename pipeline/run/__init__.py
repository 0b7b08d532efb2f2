"""The main job: its stages, its two loops, resume."""
