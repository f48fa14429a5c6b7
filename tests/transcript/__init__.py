"""Transcripts: the requests that a model receives in a shop conversation of 40 turns, printed to be
read.
"""
