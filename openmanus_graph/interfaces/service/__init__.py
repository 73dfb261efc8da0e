"""Shared by the interfaces: launching and resuming runs, threads, locks, serving with a token.

Interfaces import it, and it imports none of them.
"""
