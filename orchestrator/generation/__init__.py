"""Generation: one HTTP client for every server, the embedded server, and the transfer of weights to it."""

EMBEDDED = "orchestrate-embedded"
"""What the embedded server calls its engine in /version, where vLLM names none."""
