"""The session protocol's values: names, vectors, windows, registers, copies, their merge; see ``session/README.md``."""
