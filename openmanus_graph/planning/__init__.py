"""Decisions about plans: the plan itself, what comes next, checks, results, views.

Pure but for the checks, which use `call_model` and `run_call`. `tools` and everything above may
import it.
"""
