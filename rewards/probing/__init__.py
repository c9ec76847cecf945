"""`reward probe`: what a running reward server honours, and what a trainer would suffer."""
