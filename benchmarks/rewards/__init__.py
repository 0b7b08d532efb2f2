"""What rewards cost on real completions, stage by stage and as whole runs of them."""
