"""Middleware for other LangChain agents. Apps import it; nothing of ours does."""

from openmanus_graph.middleware.effect_ledger import EffectLedger

__all__ = ["EffectLedger"]
