"""Storage of a conversation in a hot tier (a cache) and a durable tier (a database table).

The modules define the record (state) of a conversation, read and write it in each tier, and merge
the records of different processes.
"""
