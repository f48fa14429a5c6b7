"""The web chat: one static page, a few routes, server-sent events. It listens on this machine only."""
