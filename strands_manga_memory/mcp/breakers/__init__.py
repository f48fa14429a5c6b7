"""Breaker policies, classification of calls, and health of tools."""
