"""Var-T-JEPA (Appendix A and D): components I–VI, a file each, and the model they make."""
