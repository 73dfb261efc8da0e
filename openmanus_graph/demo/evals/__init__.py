"""Ten tasks with checks, their files, and the replies of a model that does them.

`openmanus eval --shipped` does them: `suite.jsonl` holds the tasks, `judges.py` the functions of
their `python:` checks, `recording.json` one conversation for each task and each step of a plan.
"""
