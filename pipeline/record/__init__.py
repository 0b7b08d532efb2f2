"""What a run writes: folder, run.db, metrics, progress, checkpoints."""
