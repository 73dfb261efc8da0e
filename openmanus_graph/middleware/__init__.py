"""What other LangChain agents take from us, as LangChain's own `AgentMiddleware`.

For apps; nothing of ours imports it.
"""

from openmanus_graph.middleware.effect_ledger import EffectLedger

__all__ = ["EffectLedger"]
