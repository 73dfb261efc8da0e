"""What a run costs beside its model: `uv run --group bench python -m bench`."""
