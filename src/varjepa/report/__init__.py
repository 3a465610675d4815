"""Tables, charts and pages of results; the store that keeps result rows."""
