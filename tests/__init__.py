"""Tests.

Every process that they start reads bytecode: compiling Strands anew takes each of them a second.
"""

import os
import sys
from pathlib import Path

if (
    sys.dont_write_bytecode
):  # as an image for containers has it: then nothing is written beside a source, but here
    cache = str(Path(__file__).parents[1] / "build/bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, cache
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = cache
