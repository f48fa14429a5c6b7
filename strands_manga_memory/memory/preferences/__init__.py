"""What a user was heard to prefer, on its way to the table."""
