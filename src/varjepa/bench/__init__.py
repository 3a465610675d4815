"""The plain way and ours, side by side in one run."""
