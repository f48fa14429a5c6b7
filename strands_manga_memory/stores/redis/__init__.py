"""Hot store in Redis or Valkey, with its scripts and its errors."""
