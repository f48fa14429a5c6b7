"""Stores without a server: in this process, or in a local file."""
