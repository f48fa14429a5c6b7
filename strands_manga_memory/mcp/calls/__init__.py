"""Single calls of tools, from the arguments to the result."""
