"""Session protocol: the record of a conversation, its tiers, and a process's hold of it."""
