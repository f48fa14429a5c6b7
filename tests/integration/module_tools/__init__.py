"""Modules that are tools, as ``strands-agents-tools`` has them."""
