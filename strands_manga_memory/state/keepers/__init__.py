"""Who changes the layers: one keeper for each."""
