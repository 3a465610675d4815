"""Measurements of speed, compared with the paper's algorithm as it is written."""
