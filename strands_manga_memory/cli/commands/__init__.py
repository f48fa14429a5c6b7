"""The commands, each a function in a file of its own."""
