"""What puts the parts together for one deployment: its settings, and ``MangaMemory``."""
