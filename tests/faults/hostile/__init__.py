"""Hostile: what is accepted is restored, whatever it is; what is damaged costs itself.

Each kind of draw is a module.
"""
