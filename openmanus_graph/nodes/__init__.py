"""One node per file, named as in the graph."""
