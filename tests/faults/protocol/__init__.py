"""Deterministic simulation of the session protocol: every store call is a point where any other
task may run.
"""
