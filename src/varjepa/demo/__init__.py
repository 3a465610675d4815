"""SIM, the embedded table with known ambiguity, and what `varjepa demo` does with it."""
