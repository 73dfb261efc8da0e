"""Libraries: named collections of documents, cut into passages that are found by their words."""
