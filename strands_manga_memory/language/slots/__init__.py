"""What must not be lost when a conversation is made shorter. Pure."""
