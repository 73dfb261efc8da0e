"""Searching the web: one small protocol, one engine per file, and what asks them in turn."""
