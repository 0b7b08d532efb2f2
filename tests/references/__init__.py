"""Second opinions: slow, plain implementations that tests hold the fast ones against."""
