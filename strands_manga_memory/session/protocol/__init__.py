"""Storage of a conversation in a hot and a durable tier.

The modules define the record of a conversation, read and write the record in each tier, and join the records of different
processes.
"""
