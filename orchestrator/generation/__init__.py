"""Generation: one HTTP client for every server, the embedded server, and the transfer of weights to it."""
