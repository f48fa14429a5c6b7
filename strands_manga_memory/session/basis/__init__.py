"""What all conversations stand on: where each is kept, in which tiers, by which rules and for how long."""
