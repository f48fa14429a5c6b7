"""What a conversation that ended comes to."""
