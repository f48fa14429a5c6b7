"""Deterministic simulation of the session protocol: any task may run at each store call."""
