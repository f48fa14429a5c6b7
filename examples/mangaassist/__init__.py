"""MangaAssist: a small manga shop and its assistant, to see the memory layer at work.

The application is ``__main__.py``: ``assistant`` is its squad, ``terminal.py`` and ``web`` are its faces, ``demo.py`` is its
demonstration, and the files that end in ``_server.py`` are its MCP servers. ``worker.py``, ``survival.py`` and what they use
are the quick start's.
"""
