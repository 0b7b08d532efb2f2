"""The built-in ladder of function-writing tasks, written for this project."""
