"""What one process says, offers and is shown of a conversation, as values and functions without I/O or locks."""
