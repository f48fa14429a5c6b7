"""MangaAssist: a small manga shop and its assistant, as a demonstration of the memory layer.

The application is ``__main__.py``: ``assistant`` is its squad, ``terminal.py`` and ``web`` are its
interfaces, ``demo.py`` is its demonstration, and the files that end in ``_server.py`` are its MCP
servers. ``worker.py``, ``survival.py`` and the modules that they import belong to the quick start.
"""
