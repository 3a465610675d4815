"""Metrics: pure functions on arrays, without models."""
