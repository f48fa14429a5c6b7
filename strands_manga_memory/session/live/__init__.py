"""Agents and orchestrators of a session manager while their process runs."""
