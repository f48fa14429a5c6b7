"""Stores that need no server, in the memory of this process or in a local file."""
