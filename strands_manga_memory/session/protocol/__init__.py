"""Storage of conversations in two tiers: a cache (hot tier) and a database table (durable tier).

Each process and each tier has a record of a conversation: the conversation's state as that process
or tier knows it. The modules define the record, read and write it in each tier, and merge the
records of several processes.
"""
