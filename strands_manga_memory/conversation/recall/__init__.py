"""What left the window: an archive, searches in it, and quotes for one call."""
