"""Upkeep: sessions of a user listed, ended ones read, expired ones moved and finalized."""
