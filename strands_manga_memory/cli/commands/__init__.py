"""The commands of ``strands-manga-memory``, one module for each group."""
