"""Whether a call may run: valid arguments, its process, the policy, and a person's decision."""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from langgraph.config import get_config
from langgraph.errors import GraphInterrupt
from langgraph.func import task

from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import lost_state
from openmanus_graph.runtime.tool_runtime import JsonSchemaTool
from openmanus_graph.safety.destinations import approval_key, texts
from openmanus_graph.safety.information_flow import named_hosts
from openmanus_graph.safety.policy import (
    PolicyDecision,
    ProposedCall,
    evaluate_policy,
    explain_change,
    explain_excess,
    explain_unverified,
    explain_values,
)
from openmanus_graph.safety.urls import Domain
from openmanus_graph.state.context import Policy
from openmanus_graph.state.interrupts import REACH_HOST, Decision, approval_request
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.tool_calls.call_hooks import before_call, with_hooks
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.questions import Questions, believed, seal
from openmanus_graph.tool_calls.toolset import tool_call_request

QUESTION = "approval"
"""Begins the ledger's names of the questions whether a call may run."""
_IN_A_NEW_PROCESS = f"{QUESTION} in a new process"


class RejectedError(ToolError):
    """A person did not allow a call."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason
        """In the person's words; may be empty."""


@dataclass(frozen=True)
class Permission:
    args: dict[str, Any]
    """To run with; a person may have edited them."""
    result_from_person: str | None = None
    """What a person gave as its result, instead of running it."""
    remembered_approval: str = ""
    """What a person allowed for the rest of the thread by this approval."""
    approved_values: Sequence[str] = ()
    """Values that a person allowed for the rest of the thread by this approval."""
    said: Sequence[str] = ()
    """What a person wrote with the decision: it verifies what it names."""


async def prepare(execution: CallExecution) -> None:
    """Validate a call, and let the user's hooks decide about it. ToolError: what is wrong."""
    validate(execution)
    if (await before_call(execution)).args is not None:
        validate(execution)


def validate(execution: CallExecution) -> None:
    """Check the call against the tool's schema, and set its traits. ToolError: what is wrong."""
    call, toolset = execution.call, execution.context.toolset
    if call["problem"] is not None:
        raise ToolError(call["problem"])
    traits = traits_of(toolset.find(call["name"]))
    toolset.check(call["name"], call["args"])
    execution.traits = replace(traits, effect=traits.effect_of(call["args"]))


def lost_to(execution: CallExecution) -> list[str]:
    """Describe what was lost with the process that a call was meant for, if that has ended.

    In a new process it would not do what was meant: `rm *` after a `cd` that is forgotten. Calls
    that change nothing, such as opening another page, may run anyway.
    """
    traits, context = execution.traits, execution.context
    resource = None if traits.effect == "read_only" else traits.resource_of(execution.call["args"])
    live = context.session.identities()
    return lost_state(context.handle_state, live, f"{resource}:") if resource else []


async def permission_at_once(execution: CallExecution) -> Permission | None:
    """Return the permission of a call that the policy allows by itself.

    None: it has to be requested, unless the ledger knows the call already.
    """
    context, args = execution.context, execution.call["args"]
    if current_replay() is not None or execution.key in context.decisions:
        return None
    if lost_to(execution):
        return None
    return Permission(args) if (await evaluate(execution, args)).decision == "allow" else None


async def request_permission(execution: CallExecution) -> Permission:
    """Have a call allowed by the policy, or by a person. ToolError: it may not run, and why.

    A decision that was made before the group began counts, unless the policy denies the call.
    """
    args = execution.call["args"]
    verdict = await evaluate(execution, args)
    if verdict.decision == "deny":
        raise ToolError(
            f"{execution.name} was not run. {verdict.why} Find another way, or say in the answer "
            "what is left to do."
        )
    if verdict.decision == "allow" and execution.key not in execution.context.decisions:
        if not lost_to(execution):
            return Permission(args)
        raise ToolError(
            f"{execution.name} was not run: the process it was meant for has ended, and with it "
            "what earlier calls had left there. Make that again if this call needs it, then repeat "
            "it."
        )
    decision = execution.context.decisions.get(execution.key)
    if decision is None:
        questions = execution.context.questions
        decision = await _decision(execution, verdict, questions, execution.key)
    if decision.type == "respond":
        return Permission(args, result_from_person=decision.message, said=[decision.message])
    if decision.type in ("approve", "edit"):
        return await _permission_by(decision, execution, verdict)
    why = f"They said: {decision.message}\n" if decision.message else "No reason was given. "
    raise RejectedError(
        f"A person did not allow {execution.name}. {why}Do not repeat the call; adapt to this.",
        decision.message,
    )


async def _permission_by(
    decision: Decision, execution: CallExecution, verdict: PolicyDecision
) -> Permission:
    """Return what a call may do that a person approved or edited."""
    tool, call = execution.context.toolset.find(execution.name), execution.call
    if execution.traits.changed and isinstance(tool, JsonSchemaTool):
        await asyncio.to_thread(tool.accept)  # the person has seen its new description
    if decision.type == "edit":
        edited = dict(decision.args or {})
        return Permission(edited, said=[value for _, value in texts(edited)])
    if not decision.remember:
        return Permission(call["args"])
    return Permission(
        call["args"],
        remembered_approval=verdict.remembered_approval,
        approved_values=[approval_key(one["value"]) for one in call.get("unverified_values", [])],
    )


async def _decision(
    execution: CallExecution, verdict: PolicyDecision, questions: Questions, key: EffectKey
) -> Decision:
    """Have a person decide. An approval counts again only if its process still runs."""
    ask = partial(_ask_person, execution, questions=questions, key=key)
    lost, ledger = lost_to(execution), execution.context.ledger
    if lost and ledger is not None:
        if await ledger.asked(key):
            decision = await ask(verdict, QUESTION)
            if decision.type not in ("approve", "edit"):
                return decision
        ended = f"The process it was meant for has ended. Lost with it: {' '.join(lost)}"
        why = f"{verdict.why} {ended} The call would run in a new process.".strip()
        return await ask(replace(verdict, why=why), _IN_A_NEW_PROCESS)
    return await ask(verdict, QUESTION)


async def _ask_person(
    execution: CallExecution,
    verdict: PolicyDecision,
    name: str,
    questions: Questions,
    key: EffectKey,
) -> Decision:
    call, always = execution.call, ""
    if verdict.remembered_approval:
        kind = json.loads(verdict.remembered_approval)
        covers = "".join(f" {name}={value!r}" for name, value in kind["args"].items())
        what = kind["args"]["address"] if kind["tool"] == REACH_HOST else kind["tool"] + covers
        always = f"{what} in this thread"
    elif values := call.get("unverified_values", []):
        always = f"{', '.join(repr(one['value']) for one in values)} in this thread"
    request = approval_request(execution.name, call["args"], call["id"], verdict.why, always)
    return await questions.decide(key, name, request, partial(_objection, execution))


async def _objection(execution: CallExecution, decision: Decision) -> str:
    """Return why an edit cannot be carried out: a `deny` binds a person as it binds the model."""
    if decision.type != "edit":
        return ""
    if decision.tool not in ("", execution.name):
        return f"An edit cannot change the tool to {decision.tool}."
    args = dict(decision.args or {})
    try:
        execution.context.toolset.check(execution.name, args)
    except ToolError as error:
        return str(error)
    verdict = await evaluate(execution, args)
    return verdict.why if verdict.decision == "deny" else ""


async def evaluate(
    execution: CallExecution, args: Mapping[str, Any], policy: Policy | None = None
) -> PolicyDecision:
    """Evaluate the run's policy for a call, or another one; policies with rules off the event loop.

    Rules follow links and parse long texts.
    """
    settings, call = execution.context.session.settings, execution.call
    toolset, name = execution.context.toolset, execution.name
    description, traits = toolset.find(name).description, execution.traits
    refused = _refused(execution, args)
    addresses = [url for url in call.get("unverified", []) if url not in refused]
    excess = [url for url in call.get("excess", []) if url not in refused]
    values = call.get("unverified_values", [])
    asks = traits.changed == "changed" and traits.effect == "external"
    reasons = (
        explain_change(name, description) if asks else "",
        explain_unverified(addresses) if addresses else "",
        explain_excess(excess) if excess else "",
        explain_values(name, description, values) if values else "",
    )
    look_up = partial(
        evaluate_policy,
        ProposedCall(
            name=name,
            args=toolset.with_defaults(name, args),
            traits=traits,
            unverified=" ".join(filter(None, reasons)),
        ),
        settings if policy is None else replace(settings, policy=policy),
        execution.context.remembered_approvals,
    )
    verdict = await asyncio.to_thread(look_up) if settings.rules else look_up()
    return with_hooks(verdict, execution.hooked, settings.policy)


def _refused(execution: CallExecution, args: Mapping[str, Any]) -> set[str]:
    """Return the addresses of a call that no person is asked about.

    They are the agent's own pages, or the guard refuses them.
    """
    traits = execution.traits
    opened = traits.addresses(args) if traits.addresses and traits.guarded else ()
    if not opened:
        return set()
    from openmanus_graph.backends.web.guard import Guard  # such a call loads it anyway

    guard = Guard.of(execution.context.session.settings)
    return {url for url in opened if guard.refuses(url)}


async def reachable_hosts(
    execution: CallExecution, args: Mapping[str, Any]
) -> Collection[Domain] | None:
    """Return the hosts that a call's program reaches without a question; None: they are not asked.

    A person has named or approved them.
    """
    context, call = execution.context, execution.call
    settings = context.session.settings
    asks = settings.sandbox.network == "ask" and settings.policy != "auto"
    if not (asks and execution.traits.sandboxed):
        return None
    request = await tool_call_request({**call, "args": args}, context.config)
    messages = request.state.get("messages", [])
    return await asyncio.to_thread(named_hosts, call, context.judged(messages))


async def request_permissions(calls: Sequence[PendingCall], context: ToolCallContext) -> None:
    """Ask about all calls of a group at once, and add the decisions to the context.

    A single call is asked about when it runs.
    """
    ledger = context.ledger
    if ledger is None or len(calls) == 1:
        return
    executions = [CallExecution(call, context) for call in calls]
    verdicts = [await _verdict_of(execution) for execution in executions]
    if not any(verdicts) and not any([await ledger.asked(_question(one)) for one in executions]):
        return

    @task
    async def permission(position: int) -> str | None:
        return await _decide(executions[position], verdicts[position])

    # LangGraph knows the tasks within a task by their positions, so each call has one.
    answers = await _all_answers([permission(position) for position in range(len(executions))])
    for execution, answer in zip(executions, answers, strict=True):
        if decision := await _believed_decision(execution, answer):
            context.decisions[execution.key] = decision


async def _all_answers(asking: Sequence[Any]) -> list[str | None]:
    """Return the answers of all questions, or pause the run with those that are open."""
    answers: list[Any] = await asyncio.gather(*asking, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, GraphInterrupt):
            raise answer
    if paused := [answer for answer in answers if isinstance(answer, GraphInterrupt)]:
        # A graph within another one hands up the questions of all its tasks: the group's would be
        # there twice.
        is_inner = "|" in get_config().get("configurable", {})["checkpoint_ns"]
        raise GraphInterrupt([] if is_inner else [one for pause in paused for one in pause.args[0]])
    return answers


async def _verdict_of(execution: CallExecution) -> PolicyDecision | None:
    """Return why a person must be asked about a call; None if that is not needed."""
    try:
        await prepare(execution)
    except ToolError:
        return None  # reported when it runs
    verdict = await evaluate(execution, execution.call["args"])
    if verdict.decision != "ask" or current_replay() is not None:  # which asks no person
        return None
    known = await execution.recorded.look_up(execution.call["args"], begin=False)
    return verdict if known is None else None


async def _decide(execution: CallExecution, verdict: PolicyDecision | None) -> str | None:
    """Have a person decide, within the question's own task; return it as sealed JSON."""
    if verdict is None:
        return None
    questions, asked = Questions(execution.context.ledger, get_config()), _question(execution)
    decision = await _decision(execution, verdict, questions, asked)
    text = json.dumps([asked.digest, asdict(decision)])
    (sealed,) = await seal(execution.context.config, "answer", [text])
    return sealed


async def _believed_decision(execution: CallExecution, answer: str | None) -> Decision | None:
    """Return what `_decide` sealed; None if it is not ours. The call is then asked about later."""
    stored = [] if answer is None else [answer]
    for text in await believed(execution.context.config, "answer", stored):
        asked, decision = json.loads(text)
        if asked == _question(execution).digest:
            return Decision(**decision)
    return None


def _question(execution: CallExecution) -> EffectKey:
    """Return the key of the question about a call, which is asked in a separate task."""
    return replace(execution.key, execution=f"permission {execution.call.get('cell', '')}".strip())
