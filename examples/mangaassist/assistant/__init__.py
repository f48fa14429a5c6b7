"""Assistant of the shop: three agents behind Agent Squad, their tools on MCP servers, and the views
of their memory.
"""
