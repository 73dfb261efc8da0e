"""One model call, from state to reply: limits, budget, request, retries, usage, compaction.

`call_model` is the seam through which every model call runs. `tool_calls` and everything above
may import it.
"""
