"""Personal data, and what becomes of it."""
