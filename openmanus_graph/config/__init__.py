"""The only reader of environment variables and configuration files: it merges them into `Settings`.

What a setting is stands in `state.settings`. `runtime` and everything above may import it.
"""
