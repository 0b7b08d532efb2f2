"""Are tasks worth training on: what their tests catch, what passes them without an idea, what they repeat."""
