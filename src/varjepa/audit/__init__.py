"""Suspicious cells and rows of a table, their repairs, and a page that shows them."""
