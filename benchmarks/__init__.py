"""One script a claim; results/ holds what they printed, as data."""
