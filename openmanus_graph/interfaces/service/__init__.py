"""Shared by the interfaces: launching and resuming runs, threads, locks, serving with a token."""
