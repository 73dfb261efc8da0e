"""Makes the task of a run from a trigger's template and the fields of an event."""

import json
from collections.abc import Mapping
from typing import Any

from openmanus_graph.config.triggers import FIELD, SENDER
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.runs import Message, Upload
from openmanus_graph.prompts import render
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.triggers import Trigger

MOST_FIELD_CHARS, MOST_TITLE_CHARS = 100_000, 100


class EventError(ConfigError):
    """No run can start from an event: a field of the template is missing, or a file is gone."""


def task_of(trigger: Trigger, event: Mapping[str, Any], files: tuple[Upload, ...] = ()) -> Message:
    """Return the message that starts a run.

    The template is the user's own text. The values of fields follow it as marked, untrusted data,
    except those of a schedule, which are ours. EventError: the event lacks a field.
    """
    names = dict.fromkeys(FIELD.findall(trigger.task))
    values = {name: _value(event, name) for name in names}
    if missing := [name for name, value in values.items() if value is None]:
        has = ", ".join(sorted(map(str, event))) or "none"
        raise EventError(
            f"The task of the trigger {trigger.name} names {', '.join(missing)}, which the event "
            f"does not have. It has: {has}."
        )
    ours = trigger.kind == "schedule"
    words = FIELD.sub(lambda one: values[one[1]] or "" if ours else f"`{one[1]}`", trigger.task)
    if allowed := allowed_destinations(trigger, event):
        recipients = "\n".join(f"- {one}" for one in allowed)
        words = render("trigger_recipients", recipients=recipients, task=words)
    if ours or not values:
        return Message(words, files)
    fields = "\n\n".join(
        f"{name}:\n{mark_untrusted(value or '')}" for name, value in values.items()
    )
    return Message(render("trigger_task", task=words, fields=fields), files, words)


def title_of(trigger: Trigger, event: Mapping[str, Any]) -> str:
    """Return a chat's message, or the filled template, as one line that is not too long."""
    filled = FIELD.sub(lambda one: _value(event, one[1]) or "", trigger.task)
    text = str(event["text"]) if trigger.kind == "channel" else filled
    return " ".join(text.split())[:MOST_TITLE_CHARS]


def _value(event: Mapping[str, Any], name: str) -> str | None:
    """Return a field, or one within it: `pull_request.title`, `items.0`. None: there is none."""
    found: Any = event
    for part in name.split("."):
        try:
            found = found[int(part) if isinstance(found, list) else part]
        except (LookupError, ValueError, TypeError):
            return None
    return cut(found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))


def cut(text: str) -> str:
    """Return a text that is not too long for a field."""
    left = len(text) - MOST_FIELD_CHARS
    more = f"\n[{left:,} more characters are left out]" if left > 0 else ""
    return text[:MOST_FIELD_CHARS] + more


def allowed_destinations(trigger: Trigger, event: Mapping[str, Any]) -> list[str]:
    """Return where a run may send unasked. `{from}` is a mail's sender, who is in `senders`."""
    named = [str(event["from"]) if one == SENDER else one for one in trigger.may_send_to]
    return list(dict.fromkeys(named))


def options_of(
    trigger: Trigger, event: Mapping[str, Any], left_usd: float | None = None
) -> RunOptions:
    """Return the options of an event's run, which may use at most `left_usd` more today."""
    limits = [one for one in (trigger.max_cost_usd, left_usd) if one is not None]
    same = ("model", "workspace", "policy", "max_steps", "timeout")
    return RunOptions(
        **{name: getattr(trigger, name) for name in same},
        max_cost_usd=min(limits, default=None),
        may_send_to=allowed_destinations(trigger, event) or None,
    )
