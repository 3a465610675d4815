"""Fast paths of the transformer; each is tested against the plain torch reference."""
