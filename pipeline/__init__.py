"""The stages and the processes that run them: generate, score, train, publish."""
