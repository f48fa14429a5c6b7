"""Storage of conversations in two tiers: a cache (hot tier) and a database table (durable tier).

A record is the state of a conversation, as one process or one tier knows it. The modules define the
record, read and write it in each tier, and merge the records of several processes.
"""
