"""Searches the web: the engines, and the code that asks them in turn."""
