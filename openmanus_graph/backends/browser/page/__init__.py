"""One page as the model knows it: what it shows, what changed, and how to act on it."""
