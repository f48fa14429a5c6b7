"""Assistant of the shop: three agents behind Agent Squad, tools, and views of memory."""
