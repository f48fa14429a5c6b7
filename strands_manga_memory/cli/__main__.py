"""Entry point of ``python -m strands_manga_memory.cli``."""

from strands_manga_memory.cli import main

main()
