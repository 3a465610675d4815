"""Where the paper's data comes from."""
