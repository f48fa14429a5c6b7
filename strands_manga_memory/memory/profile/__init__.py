"""A profile that another service keeps."""
