"""`orchestrate check --deep`: what takes torch, TRL or a user's code is asked of child processes, never imported."""
