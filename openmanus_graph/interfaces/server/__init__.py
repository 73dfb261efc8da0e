"""The server: LangGraph's own, with our routes, its whole API behind a token, and durable threads.

`openmanus serve` and `langgraph dev` start it; it needs the extra `studio`.
"""
