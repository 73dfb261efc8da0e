"""Who starts runs: the command line, the servers, the notebook, and what these share.

Nothing imports them; `cli` stands above the servers, all of them above `service`.
"""
