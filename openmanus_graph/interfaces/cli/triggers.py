"""`openmanus triggers`, `channels` and `inbox`: runs that begin elsewhere, and what waits."""

import asyncio
import datetime
import json
import sys
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from openmanus_graph.backends.persistence.deliveries import Delivery, Event, open_deliveries
from openmanus_graph.config.triggers import add_trigger, read_automation
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.threads import JsonLinesOption, command_group, show_rows
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.triggers import Trigger

app = command_group("Runs that begin without a person: on a schedule, or when something arrives.")
channels = command_group("Where people talk to the agent: Telegram, Slack, mail.")
TriggerName = Annotated[str, typer.Argument(help="The trigger's name.")]
EventOption = Annotated[
    str | None, typer.Option("--event", help="File with the event's fields as a JSON object.")
]


@app.command()
def add(
    name: TriggerName,
    values: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="kind=, task= and other keys.")
    ],
) -> int:
    """Write a trigger into your configuration, after checking it."""
    given = {key: value for key, _, value in (one.partition("=") for one in values)}
    path = add_trigger(name, given)
    sys.stderr.write(f"Added the trigger {name} to {path}. `openmanus serve` runs it.\n")
    return 0


@app.command("list")
@takes(StorageOptions)
def list_triggers(as_json: JsonLinesOption = False) -> int:
    """List the triggers: their next run, and how the newest ended."""
    from openmanus_graph.interfaces.triggers.overview import overview

    rows, problems = overview(time.time())
    none = "There are no triggers. Add one: openmanus triggers add NAME KEY=VALUE"
    show_rows(rows, ("name", "kind", "state", "next", "last", "thread"), as_json=as_json)
    sys.stderr.writelines(f"{printable(one)}\n" for one in problems or [none] * (not rows))
    return 0


def _pausing(name: str, text: str, *, on: bool) -> None:
    @takes(StorageOptions)
    def change(trigger: TriggerName) -> int:
        open_deliveries().pause(read_automation().trigger(trigger).name, on=on)
        sys.stderr.write(f"{'Paused' if on else 'Resumed'} the trigger {trigger}.\n")
        return 0

    app.command(name, help=text)(change)


_pausing("pause", "Begin no more runs of a trigger. Webhooks are received, and wait.", on=True)
_pausing("resume", "Begin runs of a paused trigger again.", on=False)


@app.command("test")
@takes(StorageOptions)
def check(name: TriggerName, event: EventOption = None) -> int:
    """Check a trigger, and print the task that an event would start. Nothing runs."""
    from openmanus_graph.graphs.catalog import check_agent
    from openmanus_graph.interfaces.triggers import mail, sources
    from openmanus_graph.interfaces.triggers.tasks import task_of

    trigger = read_automation().trigger(name)
    check_agent(trigger.agent)
    if trigger.kind == "folder":
        sources.files_of(trigger)
    elif trigger.kind == "mail":
        mail.new_mails(trigger, None)
    if event is None and trigger.kind != "schedule":
        sys.stderr.write("The trigger can work. With --event FILE, its task is shown.\n")
    else:
        task = task_of(trigger, _given(trigger, event).fields)
        sys.stdout.write(f"{printable(task.text)}\n")
    return 0


@app.command()
@takes(StorageOptions)
def run(name: TriggerName, event: EventOption = None) -> int:
    """Start a run of a trigger now, and wait for its end."""
    from openmanus_graph.backends.models.build import run_and_close_models
    from openmanus_graph.interfaces.triggers.tasks import task_of
    from openmanus_graph.interfaces.triggers.worker import run_now

    automation = read_automation()
    trigger = automation.trigger(name)
    given = _given(trigger, event)
    task_of(trigger, given.fields)  # an event that lacks a field is refused, and not kept
    one = open_deliveries().receive(name, given, time.time())
    ended: Any = run_and_close_models(run_now(one, trigger, automation))
    _show_deliveries([ended], as_json=False)
    sys.stdout.write(f"{printable(str(ended.result.get('answer', '')))}\n")
    return 0 if ended.state == "delivered" else 1


def _given(trigger: Trigger, event: str | None) -> Event:
    """Return the event that a person starts. ConfigError: its file is no JSON object."""
    from openmanus_graph.interfaces.service.run_setup import MAX_TEXT_BYTES, read_input
    from openmanus_graph.interfaces.triggers.sources import manual_event

    found: Any = None
    if event is not None:
        try:
            found = json.loads(read_input(event, MAX_TEXT_BYTES))
            found.keys()
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"{event} is not a JSON object: {error}.") from error
    return manual_event(trigger, found)


@app.command()
@takes(StorageOptions)
def history(
    name: Annotated[str | None, typer.Argument(help="Of this trigger. Default: of all.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: JsonLinesOption = False,
) -> int:
    """List deliveries, the newest first."""
    _show_deliveries(open_deliveries().history(name, limit), as_json=as_json)
    return 0


@app.command()
@takes(StorageOptions)
def replay(
    number: Annotated[int, typer.Argument(help="The delivery's number in `history`.")],
    sent: Annotated[
        bool, typer.Option("--sent", help="Only note that its answer has arrived.")
    ] = False,
    dismiss: Annotated[
        bool, typer.Option("--dismiss", help="Leave it, and take it out of the inbox.")
    ] = False,
) -> int:
    """Try a delivery again that is dead, was skipped, or whose outcome is unknown."""
    open_deliveries().replay(number, "skipped" if dismiss else "delivered" if sent else None)
    done = "It is dismissed." if dismiss else "It counts as delivered." if sent else ""
    sys.stderr.write(f"{done or '`openmanus serve` tries it again.'}\n")
    return 0


@takes(StorageOptions)
def inbox(as_json: JsonLinesOption = False) -> int:
    """List what waits for a person: approvals, questions, unknown outcomes, failed deliveries."""
    from openmanus_graph.interfaces.triggers.overview import waiting

    found = asyncio.run(waiting(None))
    show_rows(found, ("kind", "thread", "what", "answer"), as_json=as_json)
    if not found:
        sys.stderr.write("Nothing waits for you.\n")
    return 0


def _show_deliveries(found: Iterable[Delivery], *, as_json: bool) -> None:
    rows = [asdict(one) for one in found]
    for row in rows:
        row["received"] = f"{datetime.datetime.fromtimestamp(row['received']):%Y-%m-%d %H:%M:%S}"
    show_rows(rows, ("number", "trigger", "state", "received", "thread", "reason"), as_json=as_json)


@channels.command("list")
def list_channels(as_json: JsonLinesOption = False) -> int:
    """List the channels, and who may talk to the agent there."""
    found = read_automation()
    rows = [
        {"name": one.name, "kind": one.kind, "allow": ", ".join(one.allow), "trust": one.trust}
        for one in found.channels.values()
    ]
    none = "There are no channels. Set one up: [channels.NAME] in config.toml"
    show_rows(rows, ("name", "kind", "allow", "trust"), as_json=as_json)
    problems = list(found.problems.values()) or [none] * (not rows)
    sys.stderr.writelines(f"{printable(one)}\n" for one in problems)
    return 0


@channels.command("test")
def check_channel(
    name: Annotated[str, typer.Argument(help="The channel's name.")],
    send: Annotated[
        str, typer.Option(metavar="TO", help="Also send a message to this chat or address.")
    ] = "",
) -> int:
    """Reach a channel's server, and show the name that messages are sent under."""
    from openmanus_graph.interfaces.triggers.channels import NotSentError, Outgoing, UncertainError
    from openmanus_graph.interfaces.triggers.conversations import open_channel

    channel = open_channel(replace(read_automation().channel(name), room=send))
    try:
        sys.stdout.write(f"{printable(asyncio.run(channel.identify()))}\n")
        if send:
            asyncio.run(channel.deliver(Outgoing(str(uuid.uuid4()), "A test of OpenManus.")))
            sys.stdout.write(f"A message was sent to {printable(send)}.\n")
    except (NotSentError, UncertainError) as error:
        raise ConfigError(str(error)) from error
    return 0
