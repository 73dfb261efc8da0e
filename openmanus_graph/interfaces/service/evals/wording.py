"""The words and numbers in which the terminal and the page show an evaluation."""

from collections.abc import Sequence

from openmanus_graph.backends.models.failures import redact_secrets
from openmanus_graph.interfaces.service.batch_files import BatchResult
from openmanus_graph.interfaces.service.evals.comparison import Change
from openmanus_graph.interfaces.service.evals.evaluation import Evaluation, TaskFigures
from openmanus_graph.interfaces.service.evals.grading import Verdict

UNKNOWN = "–"
OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "not_done": "not done",
    "error": "broken check",
}
"""The outcomes of attempts in the order in which they are shown, with their names."""
_MOST_CHARS = 2000


def percent(share: float | None) -> str:
    """Show a share."""
    return UNKNOWN if share is None else f"{100 * share:.3g} %"


def dollars(value: float | None) -> str:
    """Show a cost."""
    return UNKNOWN if value is None else f"${value:.3g}"


def seconds(value: float | None) -> str:
    """Show a time."""
    return UNKNOWN if value is None else f"{value:.3g} s"


def number(value: float | None) -> str:
    """Show a mean."""
    return UNKNOWN if value is None else f"{value:.3g}"


def signed(text: str, value: float | None) -> str:
    """Return a shown difference with its sign; `=` for none."""
    if value is None:
        return UNKNOWN
    return "=" if not value else f"+{text}" if value > 0 else text.replace("$-", "-$")


def passed_of(task: TaskFigures | None) -> str:
    """Show how many attempts passed, of those that count."""
    return UNKNOWN if task is None or not task.counted else f"{task.passed}/{task.counted}"


def headline(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return the figures of a whole evaluation, with their names."""
    repeat = evaluation.about.repeat
    found = [("pass@1" if repeat > 1 else "passed", percent(evaluation.pass_at(1)))]
    if repeat > 1:
        found += [
            (f"pass@{repeat}", percent(evaluation.pass_at(repeat))),
            (f"pass^{repeat}", percent(evaluation.pass_all(repeat))),
        ]
    outcomes = evaluation.outcomes()
    found += [(name, str(outcomes[kind])) for kind, name in OUTCOMES.items() if outcomes[kind]]
    if evaluation.left:
        found.append(("left", str(evaluation.left)))
    return [*found, ("cost", dollars(evaluation.cost_usd))]


def reason(result: BatchResult, verdict: Verdict) -> str:
    """Say why an attempt did not pass: what its checks said, or what its run ended with."""
    if verdict.outcome == "not_done":
        asked = "It asks: " if result.status == "waiting" else ""
        return shown(f"{verdict.where}. {asked}{result.answer}")
    said = [f"{one.check}: {one.said}" for one in verdict.findings if one.outcome != "holds"]
    return shown("\n".join(said))


def shown(text: str) -> str:
    """Return a text of an agent or a check as it may be shown: not too long, without keys."""
    text = redact_secrets(text)
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} ..."


def differences(change: Change) -> Sequence[str]:
    """Show by how much cost, steps and time have grown."""
    cost, steps = change.difference("cost_usd"), change.difference("steps")
    time = change.difference("elapsed_s")
    return (
        signed(dollars(cost), cost),
        signed(number(steps), steps),
        signed(seconds(time), time),
    )
