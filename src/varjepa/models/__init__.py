"""The paper's models. Each is made of the densities that Section 3 names."""
