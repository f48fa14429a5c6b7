"""Decides from the results of tool calls whether a tool may be called."""
