"""Reward functions, their contract and the server that scores with them. Imports nothing of orchestrator."""
