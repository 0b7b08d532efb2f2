"""A trained model as a folder for others."""
