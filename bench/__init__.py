"""What a run costs beside its model: `uv run python -m bench`."""
