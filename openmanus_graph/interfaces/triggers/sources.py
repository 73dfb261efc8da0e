"""What starts runs: the slots of a schedule, signed requests, and the files of a folder."""

import contextlib
import datetime
import fnmatch
import hashlib
import hmac
import itertools
import json
import math
import mimetypes
import os
import re
import stat
import time
import uuid
import zoneinfo
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl

from cronsim import CronSim

from openmanus_graph.backends.persistence.backend import read_object
from openmanus_graph.backends.persistence.deliveries import Deliveries, Event
from openmanus_graph.config.triggers import FIELD
from openmanus_graph.conversation.loose_json import made_plain
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import Upload
from openmanus_graph.interfaces.triggers.tasks import EventError
from openmanus_graph.safety.open_beneath import OPEN_FOLDER, read_beneath
from openmanus_graph.state.setting_declaration import seconds
from openmanus_graph.state.triggers import Trigger

ON_TIME_S = 60.0
"""A slot that is later than this was missed."""
MOST_SLOTS = 100
"""Missed slots that one look stores. The next look stores further ones."""
MAX_AGE_S = 300
"""By how much the time in a signature may differ from ours."""
_REFUSED = "The signature of the request is missing or wrong."
MOST_FILES = 10_000
MAX_FILE_BYTES = 64 << 20
_UNFINISHED = (".tmp", ".part", ".partial", ".crdownload", ".swp", "~")
"""Endings of names under which programs write what they rename later."""
Versions = dict[str, list[int]]
"""Size, time of change and inode of files, by name."""
SETTLED_S = 5.0
"""How long nobody has changed a file that counts. Whoever writes it may pause."""


def look_at_schedule(
    trigger: Trigger, table: Deliveries, now: float, *, paused: bool = False
) -> None:
    """Store the runs whose slots have come. Blocks.

    The first look only notes the time. While paused, slots pass without a run. After the clock was
    set back, slots come again. Those that had their run are known by their keys.
    """
    mark = table.mark(trigger.name)
    known = read_object(mark)
    if known is None or now < float(known["at"]):
        table.advance(trigger.name, mark, {"at": now}, (), now)
        return
    start, wanted = float(known["at"]), list[float]()
    if next(slots(trigger, start), math.inf) > now:
        return
    if trigger.missed == "all":
        wanted = list(itertools.islice(_until(trigger, start, now), MOST_SLOTS))
    else:
        wanted = list(_until(trigger, max(start, now - ON_TIME_S), now))
        if not wanted and trigger.missed == "once":
            wanted = [next(slots(trigger, now, back=True))]
    end = wanted[-1] if len(wanted) == MOST_SLOTS else now
    events = [] if paused else [slot_event(trigger, slot) for slot in wanted]
    table.advance(trigger.name, mark, {"at": end}, events, now)


def slot_event(trigger: Trigger, slot: float) -> Event:
    """Return the event of a slot, whose key is the same in all time zones."""
    at = datetime.datetime.fromtimestamp(slot, datetime.UTC)
    there = at.astimezone(zoneinfo.ZoneInfo(trigger.timezone))
    fields = {"slot": there.isoformat(), "date": f"{there:%Y-%m-%d}", "time": f"{there:%H:%M}"}
    return Event(f"{at:%Y-%m-%dT%H:%M:%SZ}", fields)


def manual_event(trigger: Trigger, fields: Mapping[str, Any] | None) -> Event:
    """Return an event that a person starts; without fields those of a slot, if it is a schedule."""
    if fields is None:
        slot = slot_event(trigger, time.time()).fields
        fields = slot if trigger.kind == "schedule" else {}
    return Event(f"manual/{uuid.uuid4()}", fields)


def slots(trigger: Trigger, start: float, *, back: bool = False) -> Iterator[float]:
    """Yield the slots after a time, or (`back`) those up to it, newest first.

    Slots of `cron` are those of the zone's wall time, as Debian's cron has them: one that daylight
    saving time leaves out comes right after, one that it repeats comes once.
    """
    if trigger.every:
        step = seconds(trigger.every)
        first = start // step * step
        yield from (
            first + (-number if back else number + 1) * step for number in itertools.count()
        )
    zone = zoneinfo.ZoneInfo(trigger.timezone)
    begin = int(start) + 1 if back else int(start)
    at = datetime.datetime.fromtimestamp(begin, datetime.UTC).astimezone(zone)
    yield from (slot.timestamp() for slot in CronSim(trigger.cron, at, reverse=back))


def _until(trigger: Trigger, start: float, now: float) -> Iterator[float]:
    return itertools.takewhile(lambda slot: slot <= now, slots(trigger, start))


def webhook_event(trigger: Trigger, headers: Mapping[str, str], body: bytes, now: float) -> Event:
    """Return the event of a request. Refused (401): it is not signed with the trigger's secret.

    The key is the sender's delivery id with a digest of the body, because no form of signature
    covers an id in a header.
    """
    secret = trigger.secret.get_secret_value().encode()
    signed, given, at = body, list[str](), ""
    if trigger.signature == "github":
        given = [headers.get("x-hub-signature-256", "").removeprefix("sha256=")]
    elif trigger.signature == "slack":
        at = headers.get("x-slack-request-timestamp", "")
        given = [headers.get("x-slack-signature", "").removeprefix("v0=")]
        signed = b"v0:" + at.encode() + b":" + body
    else:
        pairs = [one.partition("=") for one in headers.get("stripe-signature", "").split(",")]
        at = next((value for name, _, value in pairs if name.strip() == "t"), "")
        given = [value for name, _, value in pairs if name.strip() == "v1"]
        signed = at.encode() + b"." + body
    right = hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()
    if not any(hmac.compare_digest(one.encode("utf-8", "replace"), right) for one in given):
        raise Refused(401, _REFUSED)
    is_timed = trigger.signature != "github"
    if is_timed and not (re.fullmatch(r"\d{1,12}", at) and abs(now - int(at)) <= MAX_AGE_S):
        raise Refused(401, "The signature of the request is too old, or of the future.")
    fields = _fields(headers, body)
    if "body" in FIELD.findall(trigger.task):  # else it is stored once, as its fields
        fields["body"] = body.decode()
    ids = {"github": headers.get("x-github-delivery"), "slack": fields.get("event_id")}
    identity = ids.get(trigger.signature, fields.get("id"))
    return Event(f"{str(identity or '')[:200]}:{hashlib.sha256(body).hexdigest()}", fields)


def _fields(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the fields of a body of JSON or of a form. Refused (400): it is neither."""
    try:
        text = body.decode()
        if "form-urlencoded" in headers.get("content-type", ""):
            return dict(parse_qsl(text, max_num_fields=1000))
        found: Any = made_plain(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise Refused(400, "The body is neither JSON nor a form in UTF-8.") from error
    fields = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    kind = headers.get("x-github-event", "")
    return {**({"event": kind} if kind else {}), **fields}


def look_at_folder(trigger: Trigger, table: Deliveries, now: float, before: Versions) -> Versions:
    """Store the files that are new or changed, and nobody changes any more. Blocks.

    The first look only notes what is there. `before` is what the look before this one returned.
    ConfigError: the folder cannot be read.
    """
    files, mark = files_of(trigger), table.mark(trigger.name)
    stored = read_object(mark)
    if stored is None:
        table.advance(trigger.name, mark, {"files": files, "changes": 0}, (), now)
        return files
    known, changes, events = dict(stored["files"]), int(stored["changes"]), list[Event]()
    for name, version in sorted(files.items(), key=lambda one: one[1][1]):
        is_fresh = 0 <= now - version[1] / 1e9 < SETTLED_S  # a clock may have been set back
        if known.get(name) != version and before.get(name) == version and not is_fresh:
            changes += 1
            change = "changed" if name in known else "new"
            path = str(Path(trigger.path).expanduser() / name)
            fields = {"path": path, "name": name, "change": change, "size": str(version[0])}
            # By the number of the change: A, B and A again are three events.
            events.append(Event(f"{name}#{changes}", fields))
            known[name] = version
    kept = {name: version for name, version in known.items() if name in files}
    if events or len(kept) < len(stored["files"]):
        table.advance(trigger.name, mark, {"files": kept, "changes": changes}, events, now)
    return files


def files_of(trigger: Trigger) -> Versions:
    """Return the files that count. Blocks. ConfigError: the folder cannot be read."""
    folder = Path(trigger.path).expanduser()
    try:
        descriptor = os.open(folder, OPEN_FOLDER)
    except OSError as error:
        raise ConfigError(f"The folder {folder} cannot be read: {error.strerror}.") from error
    found = Versions()
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                is_hidden = name.startswith(".") or name.endswith(_UNFINISHED)
                if fnmatch.fnmatchcase(name, trigger.pattern) and not is_hidden:
                    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                        one = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(one.st_mode) and name.isprintable():
                            found[name] = [one.st_size, one.st_mtime_ns, one.st_ino]
    finally:
        os.close(descriptor)
    if len(found) > MOST_FILES:
        raise ConfigError(f"The folder {folder} has more than {MOST_FILES:,} files.")
    return found


def file_of(trigger: Trigger, event: Mapping[str, Any]) -> Upload:
    """Return the file of an event as it is now. Blocks. EventError: it is gone, or too large."""
    name, root = str(event.get("name", "")), Path(trigger.path).expanduser()
    try:
        data = read_beneath(root, name, MAX_FILE_BYTES, follow=False)
    except OSError as error:
        raise EventError(f"The file {name} of {root} cannot be read: {error.strerror}.") from error
    return Upload(name, data, mimetypes.guess_type(name)[0] or "application/octet-stream")
