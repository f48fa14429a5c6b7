"""Old turns as a summary that is checked: when it is due, how it is written, and what stands in their place."""
