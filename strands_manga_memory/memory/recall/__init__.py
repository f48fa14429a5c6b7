"""Which memories are told, and in which order."""
