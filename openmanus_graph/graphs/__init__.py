"""One graph per file: wiring only."""
