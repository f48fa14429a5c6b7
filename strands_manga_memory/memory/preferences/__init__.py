"""Storage and cache of the preferences that users state, and their delivery to other systems."""
