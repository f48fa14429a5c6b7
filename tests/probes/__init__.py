"""Probes: what the package promises, seen from outside, through its public API, on embedded and on
real stores.
"""
