"""Sequential groups: which of a reply's calls run in order, and which in parallel.

A call may need what an earlier one leaves: a chart that a program writes, a page that a click
opens. So calls run in the order in which the model made them, unless their tools declare that none
can affect another.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, takewhile

from langchain_core.messages import AnyMessage
from langchain_core.tools import BaseTool

from openmanus_graph.conversation.history import last_reply, pending_calls
from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.safety.information_flow import add_questions, is_tainted
from openmanus_graph.safety.openings import SharedOpenings
from openmanus_graph.safety.provenance import JudgedReply
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.arguments import as_meant


async def open_groups(
    tools: Mapping[str, BaseTool],
    traits: Mapping[str, Traits],
    messages: Sequence[AnyMessage],
    approved_values: Sequence[str] = (),
    *,
    network: bool = False,
    tainted: bool = False,
) -> list[list[PendingCall]]:
    """Group the open calls as `call_groups` does; off the event loop if some send anything.

    Then everything that was read is looked at. `tainted` is whether the prompt holds untrusted
    text.
    """
    message, budget = last_reply(messages), shared_budget()
    names = {call["name"] for call in message.tool_calls} if message else set[str]()
    known = [traits[name] for name in names if name in traits]
    reply = JudgedReply(messages, traits, tainted, network, approved_values)
    groups = partial(call_groups, tools, reply, None if budget is None else budget.openings)
    judged = (
        one.reaches_out or one.outlasts_thread or (network and one.sandboxed) for one in known
    )
    return await asyncio.to_thread(groups) if any(judged) else groups()


def call_groups(
    tools: Mapping[str, BaseTool], reply: JudgedReply, shared: SharedOpenings | None = None
) -> list[list[PendingCall]]:
    """Return the sequential groups of a reply's open calls that can begin now.

    No group can affect another. Arguments are read as their tools declare them, before anything
    looks at them. `shared` are the openings of parallel runs.
    """
    calls, traits = pending_calls(reply.messages), reply.traits
    for call in calls:
        if call["name"] in tools:
            meant = as_meant(tools[call["name"]], call["args"])
            if meant != call["args"]:
                call["requested_args"], call["args"] = call["args"], meant
        add_questions(call, reply, shared)
        if call["name"] in traits and traits[call["name"]].outlasts_thread:
            call["tainted"] = is_tainted(reply)
    declared = [_declared_for(call, traits) for call in calls]
    return [
        [calls[position] for position in positions]
        for group in dependent_groups(declared)
        for positions in first_groups(group, declared)
    ]


def dependent_groups(calls: Sequence[Traits]) -> list[list[int]]:
    """Return the positions of calls in groups whose calls depend on each other, directly or not."""
    groups: list[list[int]] = []
    for position, call in enumerate(calls):
        linked = [one for one in groups if not all(independent(call, calls[n]) for n in one)]
        others = [one for one in groups if one not in linked]
        groups = [*others, [*sorted(chain.from_iterable(linked)), position]]
    return sorted(groups)


def first_groups(group: Sequence[int], calls: Sequence[Traits]) -> list[list[int]]:
    """Return the sequential groups with which a group of dependent calls begins.

    The other calls come after them. A call that runs an agent is a group, and so a task, by itself:
    of several graphs in one task LangGraph could not tell after a crash which checkpoints are
    whose.
    """
    agents = list(takewhile(lambda position: calls[position].runs_agent, group))
    if agents:
        return [[position] for position in agents]
    return [list(takewhile(lambda position: not calls[position].runs_agent, group))]


def independent(one: Traits, other: Traits) -> bool:
    """Return True if two calls are known not to affect each other, in either order.

    Both traits are those for the call's arguments.
    """
    if one.resource is not None and one.resource == other.resource:
        return False
    if one.effect == other.effect == "read_only" or (one.runs_agent and other.runs_agent):
        return True
    return one.uses_one_file and other.uses_one_file


def _declared_for(call: PendingCall, traits: Mapping[str, Traits]) -> Traits:
    """Return what is declared for a call; nothing is known of a made-up tool."""
    declared = traits.get(call["name"], Traits())
    try:
        return declared.with_args(call["args"])
    except Exception:  # noqa: BLE001  # the arguments are not checked yet, and may be wrong for it
        return Traits()
