"""Other people's tools: the client of the Model Context Protocol.

Nothing here is loaded as long as no server is configured.
"""
