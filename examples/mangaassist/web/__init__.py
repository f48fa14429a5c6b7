"""Web chat: one static page, a few routes, and server-sent events.
It listens only on this machine.
"""
