"""Built-in post-process hooks."""
