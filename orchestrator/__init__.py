"""Proves that the parts of an RL run agree, starts them in order, trains, and takes them down."""
