"""Run model-written Python against tests, in separate, limited, killable processes."""
