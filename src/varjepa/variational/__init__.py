"""Section 3 of the paper without tables and without transformers."""
