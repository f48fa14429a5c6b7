"""The assistant itself: three agents behind Agent Squad, their tools on MCP servers, and what is kept of each conversation."""
