"""What a message does in the conversation, and what of it carries weight. Pure."""
