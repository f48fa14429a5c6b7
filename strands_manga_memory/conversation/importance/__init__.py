"""What stays: scores, notes, the choice under a budget, and the manager that keeps to it."""
