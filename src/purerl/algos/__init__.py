"""The algorithms, each a few pure functions over one state."""
