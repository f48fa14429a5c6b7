"""Runs single tool calls, from the arguments to the result."""
