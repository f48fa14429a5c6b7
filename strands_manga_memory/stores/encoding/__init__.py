"""Encoding of values to stored bytes: serialization, compression and encryption."""
