"""Reads the triggers and channels of the configuration, and writes a trigger into it."""

import datetime
import json
import re
import stat
import tomllib
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from openmanus_graph.config.entry_points import installed
from openmanus_graph.config.files import Layer, config_home, write_file
from openmanus_graph.config.mcp import filled_in
from openmanus_graph.config.model import CONFIG_FILE
from openmanus_graph.config.resolve import automation
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback, is_safe_transport
from openmanus_graph.state.setting_declaration import seconds
from openmanus_graph.state.triggers import Automatic, Channel, Kind, Trigger

T = TypeVar("T")
FIELD = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
"""A field of the event in a template."""
SENDER = "{from}"
"""In `may_send_to`: whoever has sent the mail."""
FIELDS: Mapping[Kind, tuple[str, ...]] = {
    "schedule": ("slot", "date", "time"),
    "folder": ("path", "name", "change", "size"),
    "mail": ("from", "to", "subject", "date", "body", "attachments"),
}
"""The fields of events whose form is ours."""
CHANNEL_PREFIX = "channel/"
"""Begins the names of the triggers that channels are."""
_PLAIN = re.compile(r"true|false|(0|[1-9]\d*)(\.\d+)?")
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,63}")


@dataclass(frozen=True)
class Automation:
    """The triggers and channels that can work, by name."""

    triggers: dict[str, Trigger]
    channels: dict[str, Channel]
    problems: dict[str, str]
    """Why others cannot, by `triggers.NAME` or `channels.NAME`."""

    def trigger(self, name: str) -> Trigger:
        """Return a trigger. ConfigError: there is none, or it cannot work."""
        return self._find(self.triggers, "trigger", name)

    def channel(self, name: str) -> Channel:
        """Return a channel. ConfigError: there is none, or it cannot work."""
        return self._find(self.channels, "channel", name)

    def _find(self, known: Mapping[str, T], what: str, name: str) -> T:
        if name not in known:
            none = f"There is no {what} {name!r}. See: openmanus {what}s list"
            raise ConfigError(self.problems.get(f"{what}s.{name}", none))
        return known[name]


def read_automation() -> Automation:
    """Return the configured triggers and channels. Blocks. ConfigError: a file cannot be read."""
    found, (triggers, channels) = Automation({}, {}, {}), automation()
    every: list[tuple[str, Any]] = [
        *((f"channels.{name}", replace(one, name=name)) for name, one in channels.items()),
        *((f"triggers.{name}", replace(one, name=name)) for name, one in triggers.items()),
    ]
    for place, one in every:
        try:
            filled = _with_values(one)
            if isinstance(filled, Trigger):
                found.triggers[one.name] = check_trigger(filled, channels)
            else:
                found.channels[one.name] = check_channel(filled, triggers)
                if filled.allow:
                    chat = _conversations(filled)
                    found.triggers[chat.name] = chat
        except ConfigError as error:
            found.problems[place] = f"[{place}] {error}"
    return found


def _with_values(one: Any) -> Any:  # a trigger or a channel
    """Fill in `${NAME}` in the texts that may hold it. ConfigError: a variable is not set."""
    changed: dict[str, Any] = {}
    for each in fields(one):
        value = getattr(one, each.name)
        if isinstance(value, SecretStr):
            changed[each.name] = SecretStr(filled_in(value.get_secret_value()))
        elif each.name in ("url", "status_url", "host", "login", "smtp", "address"):
            changed[each.name] = value = filled_in(value)
            secure = not value or is_safe_transport(value) or not each.name.endswith("url")
            _require(secure, "needs https:// addresses, except on this machine")
    return replace(one, **changed)


def check_trigger(trigger: Trigger, channels: Mapping[str, Channel]) -> Trigger:
    """Return the trigger. ConfigError says what of it cannot work."""
    _require(trigger.overlap != "thread", "has the overlap thread, which only channels have")
    _require(_NAME.fullmatch(trigger.name), "needs a name of letters, digits, - and _")
    _require(trigger.task.strip(), "needs a task")
    if trigger.kind == "schedule":
        _check_schedule(trigger)
    elif trigger.kind == "webhook":
        _require(trigger.secret.get_secret_value(), "needs a secret, which signs its requests")
    elif trigger.kind == "folder":
        _require(trigger.path, "needs the path of a folder")
    else:
        _require(trigger.kind == "mail", "has the kind channel, which only a channel makes")
        _check_mail(trigger)
        _require(trigger.senders, "needs senders: the addresses that may start a run")
    if known := FIELDS.get(trigger.kind):
        for field in FIELD.findall(trigger.task):
            names = ", ".join(known)
            _require(field in known, f"names the field {field}; a {trigger.kind} has: {names}")
    fixed = trigger.kind == "mail" or SENDER not in trigger.may_send_to
    _require(fixed, f"has {SENDER} in may_send_to, which only a mail has")
    to = channels.get(trigger.deliver_to)
    is_known = not trigger.deliver_to or to is not None
    _require(is_known, f"delivers to the channel {trigger.deliver_to!r}, which does not exist")
    _require(to is None or to.url or to.room, f"delivers to {trigger.deliver_to!r}: it has no room")
    return trigger


def check_channel(channel: Channel, known: Mapping[str, Trigger]) -> Channel:
    """Return the channel. ConfigError says what of it cannot work."""
    token, secret = (each.get_secret_value() for each in (channel.token, channel.secret))
    _require(_NAME.fullmatch(channel.name), "needs a name of letters, digits, - and _")
    alone = not channel.allow or channel.name not in known
    _require(alone, "has the name of a trigger, and both would have one address")
    kinds = ("webhook", "telegram", "slack", "mail", *sorted(installed("channels").names))
    _require(channel.kind in kinds, f"has the kind {channel.kind!r}; known: {', '.join(kinds)}")
    needed: Mapping[str, Mapping[str, object]] = {
        "webhook": {"a url": channel.url, "no allow: it only sends": not channel.allow},
        "telegram": {
            "a token": token,
            "numbers in allow: names can be changed, and taken by others": all(
                re.fullmatch(r"-?\d+", one) for one in channel.allow
            ),
        },
        "slack": {"a token": token, "a secret, which signs Slack's requests": secret},
    }
    for what, given in needed.get(channel.kind, {}).items():
        _require(given, f"needs {what}")
    if channel.kind == "mail":
        _check_mail(channel)
    return channel


def _check_mail(one: Trigger | Channel) -> None:
    if isinstance(one, Trigger) or one.allow:
        needed = one.host and one.login and one.password.get_secret_value()
        _require(needed, "needs host, login and password")
    servers = [one.host]
    if isinstance(one, Channel):
        _require(one.smtp, "needs smtp: the server that sends")
        _require("@" in (one.address or one.login), "needs an address")
        servers.append(one.smtp)
    local = all(not each or is_loopback(each.partition(":")[0]) for each in servers)
    _require(one.tls or local, "can leave out tls only for a server of this machine")


def _conversations(channel: Channel) -> Trigger:
    """Return the trigger whose events are a channel's messages, one run each."""
    same = {each.name: getattr(channel, each.name) for each in fields(Automatic)}
    task = "Answer the message of {from}. Its text: {text}"
    name = f"{CHANNEL_PREFIX}{channel.name}"
    return Trigger("channel", task, name, deliver_to=channel.name, overlap="thread", **same)


def _check_schedule(trigger: Trigger) -> None:
    from cronsim import CronSim, CronSimError

    _require(bool(trigger.cron) != bool(trigger.every), "needs either cron or every")
    if trigger.every:
        _require(seconds(trigger.every) > 0, "needs a time above 0 in every")
    try:
        zoneinfo.ZoneInfo(trigger.timezone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise ConfigError(f"names the time zone {trigger.timezone!r}, which is unknown.") from error
    try:
        if trigger.cron:
            _require(len(trigger.cron.split()) == 5, "needs a cron expression with five fields")
            CronSim(trigger.cron, datetime.datetime.now(datetime.UTC))
    except CronSimError as error:
        raise ConfigError(f"has a wrong cron expression {trigger.cron!r}: {error}.") from error


def _require(fine: object, what: str) -> None:
    if not fine:
        raise ConfigError(f"{what}.")


def add_trigger(name: str, given: Mapping[str, str]) -> Path:
    """Write a trigger into the user's configuration, and return the file. Blocks.

    ConfigError: a value is wrong, or there is a trigger of this name.
    """
    kinds, values = {each.name: str(each.type) for each in fields(Trigger)}, dict[str, Any]()
    for key, value in given.items():
        plain = re.search(r"\b(int|float|bool)\b", kinds.get(key, "")) and _PLAIN.fullmatch(value)
        parts = value.split(",") if "tuple" in kinds.get(key, "") else value
        values[key] = json.loads(value) if plain else parts
    path, layer, known = config_home() / CONFIG_FILE, Layer(), read_automation()
    try:
        layer.read({"triggers": {name: values}})
        _require(not layer.problems, "; ".join(layer.problems))
        _require(not layer.unknown, f"{', '.join(layer.unknown)}: there is no such key")
        trigger = replace(layer.values["triggers"][name], name=name)
        is_new = name not in known.triggers and f"triggers.{name}" not in known.problems
        _require(is_new, "there is a trigger of this name already")
        try:
            check_trigger(_with_values(trigger), known.channels)
        except ConfigError as error:  # it begins with a verb
            raise ConfigError(f"it {error}") from error
        text = path.read_text("utf-8") if path.exists() else ""
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        lines = [f"{key} = {json.dumps(one, ensure_ascii=False)}\n" for key, one in values.items()]
        changed = f"{text.rstrip()}\n\n[triggers.{name}]\n{''.join(lines)}".lstrip()
        tomllib.loads(changed)
    except (OSError, ValueError, ConfigError) as error:
        raise ConfigError(f"The trigger {name} was not added: {error}") from error
    write_file(path, changed, mode=mode)
    return path
