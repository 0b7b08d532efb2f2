"""The training step on recorded samples: speed, memory and gradient of each technique, beside TRL's."""
