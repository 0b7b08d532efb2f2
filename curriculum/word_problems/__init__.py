"""Built-in word problems, answered by a function: an ability that training on code should not lose."""
