"""The replicas of a conversation: one copy in one tier, over the ports ``HotStore`` and ``Table``."""
