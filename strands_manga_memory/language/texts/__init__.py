"""What a text is, whatever it says: its form, its length, its words and how they are told apart. Pure."""
