"""Serialization, compression and encryption of stored values."""
