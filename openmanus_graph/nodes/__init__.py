"""One node per file, named as in the graph.

Graphs import them; what they decide and do is in `model_calls`, `tool_calls`, `planning`.
"""
