"""Finding texts by what they say: terms, passages, vectors and times. Pure."""
