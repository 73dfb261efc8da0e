"""Reads configuration files and the environment variables of settings, and merges them.

`state.settings` declares the settings. `runtime` and everything above may import it.
"""
