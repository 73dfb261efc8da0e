"""The nodes and edges that LangChain's `AgentMiddleware`s add to our loop."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from langgraph.graph import StateGraph

from openmanus_graph.nodes.hooks import HOOKS, Middleware, jumps_of, route_after_hook, run_hook
from openmanus_graph.nodes.think import begin
from openmanus_graph.runtime.middleware import NodeHook, with_hook
from openmanus_graph.runtime.session_keeper import GraphRouter, graph_node
from openmanus_graph.state.context import Context
from openmanus_graph.tool_calls.agent import Agent


class LoopEntries(NamedTuple):
    """The nodes that the loop's own edges lead to: its own, or the hooks that come before them."""

    start: str
    before_model: str
    after_model: str
    """Where a new reply goes before its calls are run; empty without such a hook."""
    end: str


def add_hooks(builder: StateGraph[Any, Context, Any, Any], agent: Agent) -> LoopEntries:
    """Add a node for each hook that a middleware has, and the edges between them.

    Returns:
        Where the loop's own edges lead.
    """
    hooks = {hook: with_hook(agent.middleware, hook) for hook in HOOKS}
    hooks["after_model"].reverse()
    hooks["after_agent"].reverse()
    first = {hook: f"{found[0].name}.{hook}" if found else "" for hook, found in hooks.items()}
    before_model = first["before_model"] or "think"
    begins = bool(hooks["before_agent"] or hooks["before_model"])
    entries = LoopEntries(
        start="begin" if begins else before_model,
        before_model=before_model,
        after_model=first["after_model"],
        end=first["after_agent"] or "terminate",
    )
    if begins:
        first_node = first["before_agent"] or before_model
        node = partial(begin, agent=agent, first_node=first_node, loop_entry=before_model)
        destinations = tuple(dict.fromkeys([first_node, before_model]))
        builder.add_node("begin", graph_node(node), destinations=destinations)
    last = (before_model, "think", "", "terminate")
    for hook, after in zip(HOOKS, last, strict=True):
        _add_hook_nodes(builder, agent, entries, hook, hooks[hook], after)
    return entries


def _add_hook_nodes(
    builder: StateGraph[Any, Context, Any, Any],
    agent: Agent,
    entries: LoopEntries,
    hook: NodeHook,
    middleware: Sequence[Middleware],
    last: str,
) -> None:
    """Add the nodes of one kind of hook, in the order in which they run.

    `last` is the node after them; it is empty after a reply, whose calls decide.
    """
    names = [f"{one.name}.{hook}" for one in middleware]
    for one, name, then in zip(middleware, names, [*names, last][1:], strict=True):
        node = graph_node(partial(run_hook, middleware=one, hook=hook, agent=agent))
        builder.add_node(name, node, trace_policy=one.trace_policy)
        jumps = jumps_of(one, hook)
        targets = {"next": then} if then else {}
        if "end" in jumps:
            targets["end"] = "terminate" if hook == "after_agent" else entries.end
        if "model" in jumps:
            targets["model"] = entries.before_model
        if "tools" in jumps or not then:
            targets |= {"act": "act", "stuck_check": "stuck_check", "terminate": entries.end}
        if list(targets) == ["next"]:
            builder.add_edge(name, then)
            continue
        route = GraphRouter(partial(route_after_hook, agent=agent, decides=not then))
        builder.add_conditional_edges(name, route, cast("Any", targets))
