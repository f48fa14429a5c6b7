"""What releases have stored, as files, and how a file is made of what this release stores."""
