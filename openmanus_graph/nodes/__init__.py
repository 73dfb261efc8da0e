"""One node per file, named as in the graph.

Graphs import them; what they decide and do stands in `model_calls`, `tool_calls`, `planning`.
"""
