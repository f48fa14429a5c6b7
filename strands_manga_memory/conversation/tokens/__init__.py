"""How many tokens something has, and how many it may have."""
