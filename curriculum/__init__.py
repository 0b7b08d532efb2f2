"""Tasks: where they come from, how hard they are, which one is drawn next."""
