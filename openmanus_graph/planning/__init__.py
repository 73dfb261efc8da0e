"""Decisions about plans: the plan itself, what comes next, checks, results, views.

Pure but for the checks, which use `call_model` and `run_call`. Tools, nodes and graphs import it.
"""
