"""Probes: promises of the package through its public API, on embedded and real stores."""
