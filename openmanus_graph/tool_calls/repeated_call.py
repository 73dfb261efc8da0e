"""Does a recorded call really again, in a replay that was asked for that."""

from openmanus_graph.backends.persistence.ledger import LedgerEntry
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.safety.untrusted_text import without_mark
from openmanus_graph.tool_calls.context import CallExecution
from openmanus_graph.tool_calls.execution import run_tool
from openmanus_graph.tool_calls.permission import evaluate


async def repeat_call(execution: CallExecution, recorded: LedgerEntry) -> None:
    """Run a recorded call with its effects, if the replay under way does such calls again.

    The graph goes on with the recorded outcome, so the run asks for the same next. The policy
    decides as if the call were made for the first time; there is nobody to be asked.

    Raises:
        ReplayEndedError: It is not allowed, or it does not come out as it was recorded.
    """
    replay, outcome = current_replay(), recorded.outcome or {}
    repeatable = outcome.get("repeatable")
    if replay is None or repeatable is None or not replay.repeats(execution.name):
        return
    shown = f"{execution.name} {canonical_args(recorded.args)}"
    verdict = await evaluate(execution, recorded.args)
    if verdict.decision == "deny":
        replay.refuse_repeat(shown, f"The policy refuses it. {verdict.why}")
    if verdict.decision == "ask":
        replay.refuse_repeat(
            shown, f"The policy would ask a person. {verdict.why} To allow it: --policy auto."
        )
    now = await run_tool(execution, recorded.args, repeatable)
    replay.record_repeat(
        shown, without_mark(outcome["text"]), without_mark(now.text), failed=now.failed
    )
