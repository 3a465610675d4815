"""Measurements: speed, beside the paper's algorithm as it is written."""
