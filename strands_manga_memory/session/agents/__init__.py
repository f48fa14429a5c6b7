"""Live agents: what becomes of an agent and of its conversation when Strands says that something happened."""
