"""AG-UI, the protocol of agents in user interfaces: a conversation is a thread.

`ag-ui-langgraph` runs a graph by itself, past this server's queue, locks and event log; so only the
protocol's types are taken from its makers.
"""
