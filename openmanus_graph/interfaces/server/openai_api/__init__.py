"""OpenAI's protocol: agents are models, a conversation is a thread.

Clients made for OpenAI use it with this server's address and its token as the API key.
"""
