"""Results → tables beside the paper's, and figures."""
