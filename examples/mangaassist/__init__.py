"""MangaAssist: a small manga shop and its assistant, to see the memory layer at work."""
