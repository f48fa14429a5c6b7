"""Single calls of guarded tools, from the arguments to the result."""
