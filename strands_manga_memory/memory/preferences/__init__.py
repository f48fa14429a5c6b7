"""Stores the preferences that users state, caches them, and sends them to other services."""
