"""Writing a summary: what is asked for, what came of it, and what is known of drafts."""
