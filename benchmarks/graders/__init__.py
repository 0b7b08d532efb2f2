"""Other graders of code beside our own: which attacks they let pass, which honest programs they fail."""
