"""Room in stages, each only if the one before did not make enough."""
