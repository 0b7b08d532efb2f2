"""A model by name: find, check, load, merge; its tokenizer and prompts."""
