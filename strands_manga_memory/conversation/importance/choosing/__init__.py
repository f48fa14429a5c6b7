"""Choosing: what of a history stays within a budget, and in which form."""
