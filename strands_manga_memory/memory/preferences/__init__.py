"""Storage, cache and delivery of the preferences that users state."""
