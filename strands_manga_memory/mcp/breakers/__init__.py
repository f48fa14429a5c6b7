"""When a tool is called no more, and what its answers and failures say of its health."""
