"""Classification of tool calls, and settings and statistics of the circuit breakers."""
