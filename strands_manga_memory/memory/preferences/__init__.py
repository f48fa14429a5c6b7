"""Preferences of users: statements, their log, and their way to the table and to sinks."""
