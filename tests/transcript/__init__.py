"""Transcripts: printed requests of a shop conversation of 40 turns."""
