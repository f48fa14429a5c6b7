"""Strands' ``Storage`` over both tiers."""
