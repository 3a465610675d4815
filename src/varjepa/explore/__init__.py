"""A page on which a table's embedding can be explored."""
