"""The user's hooks before and after a tool call, which see it as a call of Claude Code's tools."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from langchain_core.messages import AnyMessage

from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.runtime.hooks import NOTHING, HookResult, has_hooks, run_hooks
from openmanus_graph.safety.information_flow import add_questions
from openmanus_graph.safety.policy import PolicyDecision
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.toolset import tool_call_request

_FILE = {"path": "file_path"}
_EDIT = ("Edit", {**_FILE, "old_str": "old_string", "new_str": "new_string"})
_ALIASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "bash": ("Bash", {}), "read_file": ("Read", _FILE), "str_replace_editor": _EDIT,
    "str_replace_editor create": ("Write", {**_FILE, "file_text": "content"}),
    "str_replace_editor view": ("Read", _FILE), "web_search": ("WebSearch", {}),
    "fetch_page": ("WebFetch", {}), "crawl4ai": ("WebFetch", {}), "planning": ("TodoWrite", {}),
    "delegate": ("Task", {"agent": "subagent_type", "task": "prompt"}),
    "ask_human": ("AskUserQuestion", {}),
}  # fmt: skip
"""Our tools, or commands of them, and their names and arguments in Claude Code."""


def _alias_of(execution: CallExecution) -> tuple[str, Mapping[str, str]]:
    """Return the name of a call's tool, and those of its arguments, in Claude Code."""
    name, tool = execution.name, execution.context.toolset.find(execution.name)
    server, listed = getattr(tool, "managed_server", None), getattr(tool, "listed_tool", None)
    if server is not None and listed is not None:
        return f"mcp__{server.server.name}__{listed.name}", {}
    command = f"{name} {execution.call['args'].get('command')}"
    return _ALIASES.get(command) or _ALIASES.get(name) or (name, {})


async def _run(
    execution: CallExecution, event: str, args: Mapping[str, Any], **more: Any
) -> HookResult:
    """Run the hooks of an event, which are told of a call as one of Claude Code's tool."""
    session, (name, names) = execution.context.session, _alias_of(execution)
    given = {names.get(key, key): one for key, one in args.items()}
    if isinstance(path := given.get("file_path"), str):
        given["file_path"] = str(session.settings.workspace / path)  # there it is absolute
    told = {"tool_name": name, "tool_input": given, "tool_use_id": execution.call["id"], **more}
    emit, own_name = execution.context.emit, execution.name
    return await run_hooks(session, event, told, emit, (name, own_name))


async def before_call(execution: CallExecution) -> HookResult:
    """Let hooks decide about a validated call; return what they decided.

    They are run once for each execution: the ledger keeps the decision, as a row of its own. If
    they change the arguments, the call is changed, and has to be validated again.
    """
    context = execution.context
    if not has_hooks(context.session, "PreToolUse"):
        return NOTHING
    key = replace(execution.key, execution=f"hooks {execution.key.execution}".strip())
    if key not in context.hook_results:
        known = await context.ledger.find(key) if context.ledger is not None else None
        if known is not None and known.outcome is not None:
            result = HookResult(**known.outcome)
        else:
            result = await _run(execution, "PreToolUse", execution.call["args"])
            if context.ledger is not None:
                args = execution.call["args"] if result.args is None else result.args
                await context.ledger.intend(key, args, execution.call["id"])
                await context.ledger.conclude(key, args, asdict(result))
        context.hook_results[key] = result
    execution.hooked = result = context.hook_results[key]
    if result.args is not None:
        await _change_arguments(execution, result)
    return result


async def _change_arguments(execution: CallExecution, result: HookResult) -> None:
    call, context = execution.call, execution.context
    ours = {there: name for name, there in _alias_of(execution)[1].items()}
    args = {ours.get(name, name): one for name, one in (result.args or {}).items()}
    if execution.name == "str_replace_editor":  # there each command is a tool
        args.setdefault("command", call["args"]["command"])
    changed: PendingCall = {
        "id": call["id"],
        "name": call["name"],
        "args": args,
        "requested_args": call.get("requested_args", call["args"]),
        "occurrence": call["occurrence"],
        "problem": None,
    }
    if "cell" in call:
        changed["cell"], changed["parent"] = call["cell"], call.get("parent", "")
    if context.config.get("configurable", {}).get("checkpoint_ns"):  # it belongs to a conversation
        request = await tool_call_request({**call, "args": args}, context.config)
        await judge_changed(changed, request.state.get("messages", []), context)
    execution.call = changed


async def judge_changed(
    call: PendingCall, messages: Sequence[AnyMessage], context: ToolCallContext
) -> None:
    """Add to a call that a hook has changed what a person must approve of it."""
    budget = shared_budget()
    shared = None if budget is None else budget.openings
    await asyncio.to_thread(add_questions, call, context.judged(messages), shared)


def with_hooks(verdict: PolicyDecision, result: HookResult, policy: str) -> PolicyDecision:
    """Return the policy's decision together with that of the hooks: the stricter one.

    A hook that allows a call only answers the question that its tool asks by itself. Rules of the
    policy, and questions about values, are asked nevertheless.
    """
    if result.refuses:
        return PolicyDecision("deny", f"A hook of the user forbids it. {result.reason}")
    if verdict.decision == "deny":
        return verdict
    if result.decision == "ask" and policy == "never":
        return PolicyDecision("deny", "A hook asks about it, and the policy asks nobody.")
    if result.decision == "ask":
        return PolicyDecision("ask", f"A hook asks first. {result.reason} {verdict.why}".strip())
    if result.decision == "allow" and verdict.decision == "ask" and not verdict.why:
        return PolicyDecision("allow", "")
    return verdict


async def after_call(
    execution: CallExecution, args: Mapping[str, Any], observation: Observation
) -> Observation:
    """Run the hooks after a call that succeeded; return the result with what they say to it."""
    context, before = execution.context, execution.hooked
    after = NOTHING
    if has_hooks(context.session, "PostToolUse") and not observation.failed:
        response = {"stdout": observation.text, "stderr": "", "interrupted": False, "success": True}
        after = await _run(execution, "PostToolUse", args, tool_response=response)
    changed = json.dumps(execution.call["args"], ensure_ascii=False) if before.args else ""
    said = (
        f"A hook of the user changed the arguments to {changed}" if changed else "",
        before.context,
        after.reason if after.decision == "deny" else "",
        after.context,
    )
    lines = [f"[Hook of the user: {one}]" for one in said if one]
    if after.stops is not None:
        observation = replace(observation, ends_run="failure")
    if not lines:
        return observation
    # What a hook writes may come from a file, and verifies nothing.
    return replace(observation, text="\n".join([observation.text, *lines]), trusted_text=False)
