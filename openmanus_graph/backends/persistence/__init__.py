"""What survives the process: threads, checkpoints and the effect ledger, in SQLite or PostgreSQL."""
