"""Web chat on this machine only: one static page, a few routes, and server-sent events."""
