"""Evaluation: a suite of tasks with checks, done as a batch, judged, counted and compared.

The command `openmanus eval` uses it; the results of an evaluation lie in one folder.
"""
