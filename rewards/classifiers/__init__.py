"""Reward models: sequence classifiers of transformers."""
