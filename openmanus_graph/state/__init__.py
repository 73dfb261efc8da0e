"""What checkpoints hold, and what a run is given."""
