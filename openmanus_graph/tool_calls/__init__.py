"""One tool call, from reply to observation: declaration, permission, ledger, time limit, output.

`run_call` is the seam through which every tool call runs. `planning` and everything above may
import it.
"""
