"""Runs hooks, the user's commands at events of a run, by the protocol of Claude Code.

A hook reads JSON from its input. Exit code 2, or JSON in its output, says what is to happen. Hooks
run outside of the sandbox, as the user, with the user's own environment.
"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openmanus_graph.config.claude_files import digest_of
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.replaying import current_replay
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import Hook
from openmanus_graph.state.json_values import as_object, json_or

MAX_CHARS = 10_000
"""Of each text that a hook writes for the model."""
TRANSCRIPT = "transcript.jsonl"
"""In the private folder: the conversation, as far as it was at the last prompt, or end."""
_MAX_BYTES = 1 << 20
"""Of a hook's output; the rest is dropped."""
_POLL_S, _GRACE_S = 0.01, 1.0
"""The second is for the rest of the output, if a program that a hook left running holds it."""
_SHOWN_CHARS = 80
"""Of a command, in a notice."""
_MODES = {"ask": "default", "auto": "bypassPermissions", "never": "dontAsk"}
_NAMES = re.compile(r"[\w\s,|-]+")
_WEIGHT = ("", "allow", "ask", "deny")


@dataclass(frozen=True)
class HookResult:
    """What the hooks of one event decided, together or alone."""

    decision: str = ""
    """`allow`, `ask`, `deny` or empty."""
    reason: str = ""
    context: str = ""
    """For the model."""
    args: dict[str, Any] | None = None
    """The changed arguments."""
    stops: str | None = None
    """Why the run has to end; None if it continues."""
    message: str = ""
    """For the person."""

    @property
    def refuses(self) -> bool:
        return self.decision == "deny" or self.stops is not None


NOTHING = HookResult()


def has_hooks(session: Session, *events: str) -> bool:
    """Return True if hooks run at one of these events. A replay runs none."""
    return current_replay() is None and any(one.event in events for one in session.settings.hooks)


async def run_hooks(
    session: Session, event: str, told: Mapping[str, Any], emit: Emit, names: Sequence[str] = ("",)
) -> HookResult:
    """Run the hooks of an event in parallel, and return what they decide together.

    The strictest decision counts. Each decision, and what went wrong, is also a notice. A hook is
    `told` what belongs to the event, if its matcher matches one of the names.
    """
    if not has_hooks(session, event):
        return NOTHING
    settings = session.settings
    given = {
        "session_id": session.thread,
        "transcript_path": str(settings.private / TRANSCRIPT),
        "cwd": str(settings.workspace),
        "permission_mode": _MODES[settings.policy],
        "hook_event_name": event,
        **told,
    }
    hooks = dict.fromkeys(
        one
        for one in settings.hooks
        if one.event == event and any(_matches(one.matcher, name) for name in names)
    )
    results = await asyncio.gather(*(_result_of(hook, given) for hook in hooks))
    for hook, result in zip(hooks, results, strict=True):
        _report(hook, result, emit)
    decision = max((one.decision for one in results), key=_WEIGHT.index, default="")
    return HookResult(
        decision,
        "\n".join(one.reason for one in results if one.reason and one.decision == decision),
        "\n\n".join(one.context for one in results if one.context),
        next((one.args for one in reversed(results) if one.args is not None), None),
        next((one.stops for one in results if one.stops is not None), None),
    )


def _matches(matcher: str, name: str) -> bool:
    if matcher in ("", "*") or not name:
        return True
    if _NAMES.fullmatch(matcher):
        return name in re.split(r"[\s,|]+", matcher)
    return re.search(matcher, name) is not None


def _report(hook: Hook, result: HookResult, emit: Emit) -> None:
    parts = (result.decision, "changed" * (result.args is not None), "stop" * bool(result.stops))
    decision = " ".join(filter(None, parts))
    text = " ".join(filter(None, (result.reason, result.stops, result.message)))
    if decision or text:
        about = {"event": hook.event, "command": hook.shown, "decision": decision}
        shown = " ".join(hook.shown.split())[:_SHOWN_CHARS]
        text = f"The hook {shown!r} of {hook.event}: {decision and f'{decision}. '}{text}".strip()
        emit({"type": "notice", "level": "warning", "text": text, "hook": about})


async def _result_of(hook: Hook, given: Mapping[str, Any]) -> HookResult:
    """Run one hook, and read its exit code and output."""
    try:
        if (
            hook.files
            and await asyncio.to_thread(digest_of, hook.folder, hook.files) != hook.digest
        ):
            why = "It was not run: its files have changed since you trusted them."
            return HookResult("deny", why)
        code, text, error = await _execute(hook, json.dumps(given).encode())
    except TimeoutError:
        code, text, error = -1, "", f"It was ended after {hook.timeout_s:g} s, its time limit."
    except OSError as cause:
        code, text, error = -1, "", f"It could not be run: {cause.strerror}."
    read: Any = json_or(text) if text.startswith("{") else {}  # any JSON
    tells = hook.event in ("UserPromptSubmit", "SessionStart")
    if not code and read is None and not tells:
        code, error = -1, "Its output begins with { but is not JSON."
    if code == 2 or (code and hook.blocks_on_failure):
        return HookResult("deny", error or "It gave no reason.")
    if code:
        how = f"It failed with exit code {code}. " if code > 0 else ""
        return HookResult(message=f"{how}{error}")
    if not (found := as_object(read)):
        return HookResult(context=text[:MAX_CHARS] if tells else "")
    own = as_object(found.get("hookSpecificOutput"))
    older = {"approve": "allow", "block": "deny"}.get(str(found.get("decision")), "")
    decision = str(own.get("permissionDecision") or older)
    return HookResult(
        decision if decision in _WEIGHT else "",
        str(own.get("permissionDecisionReason") or found.get("reason") or "")[:MAX_CHARS],
        str(own.get("additionalContext") or "")[:MAX_CHARS],
        as_object(own["updatedInput"]) if isinstance(own.get("updatedInput"), dict) else None,
        str(found.get("stopReason") or "No reason was given.")[:MAX_CHARS]
        if found.get("continue") is False
        else None,
        str(found.get("systemMessage") or "")[:MAX_CHARS],
    )


async def _execute(hook: Hook, given: bytes) -> tuple[int, str, str]:
    """Run a hook's command; return its exit code, output and errors.

    TimeoutError: it took too long. OSError: it cannot be started. Then, and if it is cancelled, it
    is killed with all that it started.
    """
    # Settings of ours in the environment may be secret, and are not for other programs.
    kept = {name: one for name, one in os.environ.items() if not name.startswith("OPENMANUS_")}
    process = await asyncio.create_subprocess_exec(
        *hook.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=hook.folder,
        env={**kept, "CLAUDE_PROJECT_DIR": str(hook.folder)},
        start_new_session=True,
    )
    stdin, stdout, stderr = cast("Sequence[Any]", (process.stdin, process.stdout, process.stderr))
    out, err = bytearray(), bytearray()
    reading = [asyncio.create_task(_read(stdout, out)), asyncio.create_task(_read(stderr, err))]
    try:
        stdin.write(given)
        stdin.close()
        async with asyncio.timeout(hook.timeout_s):
            # `wait` would wait for the output, too.
            while (code := process.returncode) is None:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(_POLL_S)
            await asyncio.wait(reading, timeout=_GRACE_S)
    finally:
        if process.returncode is None or not all(one.done() for one in reading):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ended = asyncio.create_task(process.wait())
            await asyncio.wait([*reading, ended], timeout=_GRACE_S)
            for one in (*reading, ended):  # a program in another session may hold the output
                one.cancel()
    text, error = (kept.decode("utf-8", "replace").strip() for kept in (out, err))
    return code, text, error[:MAX_CHARS]


async def _read(stream: asyncio.StreamReader, kept: bytearray) -> None:
    """Read a stream to its end, and keep the beginning."""
    while data := await stream.read(1 << 16):
        kept += data[: _MAX_BYTES - len(kept)]
