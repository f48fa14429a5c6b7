"""A user's records in the memory table."""
