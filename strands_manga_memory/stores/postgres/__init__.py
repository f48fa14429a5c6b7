"""Table on a PostgreSQL server, with its pool of connections."""
