"""The layers of the state as values. Pure."""
