"""Kernels that compute a whole transformer at once; :mod:`varjepa.nn.transformer` decides when."""
