"""The nodes of the graphs, named as in them.

Graphs import them; what they decide and do is in `model_calls`, `tool_calls`, `planning`.
"""
