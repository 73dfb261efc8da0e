"""What survives the process, in SQLite or PostgreSQL: threads, checkpoints, the effect ledger."""
