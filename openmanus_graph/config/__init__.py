"""The only reader of environment variables and configuration files: it merges them into `Settings`.

`state.settings` declares the settings. `runtime` and everything above may import it.
"""
