"""What a user likes and dislikes. Pure."""
