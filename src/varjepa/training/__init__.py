"""Optimisation loops. They know models and objectives, not where data comes from."""
