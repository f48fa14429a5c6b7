"""How a value becomes stored bytes, packed and encrypted, and comes back."""
