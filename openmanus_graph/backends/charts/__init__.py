"""Charts from tables: read, described, drawn, and what the figures say."""
