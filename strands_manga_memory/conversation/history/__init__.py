"""The history itself: its exchanges, its layout under a session manager, and texts that are shortened in it."""
