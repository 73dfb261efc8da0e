"""Chains: which of a reply's calls run in order, and which at once."""

import asyncio
from collections.abc import Mapping, Sequence

from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool

from openmanus_graph.conversation.history import last_reply, pending_calls
from openmanus_graph.safety.provenance import unverified_addresses
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.tool_calls.declaration import traits_of

UNKNOWN = "unknown"
"""The resource of calls whose tools declare nothing: they share one chain, to be safe."""


async def open_chains(
    tools: Mapping[str, BaseTool], messages: Sequence[AnyMessage]
) -> list[list[PendingCall]]:
    """Group the calls; where some open addresses, off the loop: all that was read is looked at."""
    reply = last_reply(messages)
    names = {call["name"] for call in reply.tool_calls} if reply else set[str]()
    if any(traits_of(tools[name]).addresses for name in names if name in tools):
        return await asyncio.to_thread(call_chains, tools, messages)
    return call_chains(tools, messages)


def call_chains(
    tools: Mapping[str, BaseTool], messages: Sequence[AnyMessage]
) -> list[list[PendingCall]]:
    """Group the open calls: those that share a resource form a chain, in call order."""
    chains: dict[str, list[PendingCall]] = {}
    traits = {name: traits_of(tool) for name, tool in tools.items()}
    for index, call in enumerate(pending_calls(messages)):
        declared = traits.get(call["name"])
        resource = declared.resource_of(call["args"]) if declared else UNKNOWN
        unverified = unverified_addresses(call, messages, traits)
        if unverified:
            call["unverified"] = unverified
        chains.setdefault(resource or f"call {index}", []).append(call)
    return list(chains.values())
