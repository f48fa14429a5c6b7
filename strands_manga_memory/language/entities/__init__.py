"""What a conversation is about: titles, dates, prices, orders. Pure."""
