"""What each message is worth. Pure."""
