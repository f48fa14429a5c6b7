"""Who calls which replica, and when: save, flush, restore, refresh, sweep, delete, redact. Every try is counted."""
