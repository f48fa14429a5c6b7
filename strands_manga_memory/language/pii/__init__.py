"""Recognition of personal data in text."""
