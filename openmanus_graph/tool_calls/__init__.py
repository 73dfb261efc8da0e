"""One tool call, from reply to observation: declaration, permission, ledger, time limit, output.

`run_call` is the seam through which every tool call runs. Planning, tools, nodes and graphs may
import it.
"""
