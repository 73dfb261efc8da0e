"""Decisions about plans: the plan itself, what comes next, checks, results, views.

Only checks and drafts call models and tools. `tools` and everything above may import it.
"""
