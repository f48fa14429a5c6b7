"""``python -m strands_manga_memory.cli``: the command line, where its script is not on the path."""

from strands_manga_memory.cli import main

main()
