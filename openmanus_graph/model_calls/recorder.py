"""Writes each model call of a thread into its recording, for `openmanus replay`.

Checkpoints do not hold the requests: these are shortened, end with a reminder, and many are not the
agent's (summaries, checks, extracts). Only what is new in a request is read and stored, so a call
late in a run costs as much as an early one.
"""

import asyncio
import hashlib
import json
import logging
import operator
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any, TypeVar, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)
from langgraph.config import get_config

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.models.resolved import ResolvedModel
from openmanus_graph.backends.persistence.backend import LeaseLostError
from openmanus_graph.backends.persistence.recording import (
    FOLDERS,
    ModelCallRecords,
    NewCall,
    Part,
    open_model_call_records,
)
from openmanus_graph.errors import StorageError
from openmanus_graph.runtime import checkpoint_lineage, replaying
from openmanus_graph.runtime.events import plan_step_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.context import ModelRole
from openmanus_graph.state.json_values import as_object


@dataclass(frozen=True)
class ProviderRequest:
    """A request in the common form; `fitting` makes it fit the model's server."""

    messages: list[BaseMessage]
    """A system message first, if there is one."""
    tools: Sequence[dict[str, Any]]
    model: ResolvedModel
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Given to the model with this request: `tool_choice` and the like."""
    history: Sequence[AnyMessage] = ()
    only_answer: bool = False


T = TypeVar("T")
log = logging.getLogger(__name__)
LIMITS = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s")
"""Settings that often differ in a thread's later runs: it is resumed with higher ones."""
INSTRUCTIONS, SKILLS = "instructions", "skills"
MACHINE_FACTS = frozenset({INSTRUCTIONS, SKILLS})
"""Names of facts that are a person's texts on this machine, which are edited and compared."""
_DATA_CHARS = 2048
"""A picture or sound as text is longer; the recording holds its digest."""
_DATA = re.compile(r"(data:[^,]{0,100},)?[A-Za-z0-9+/=_\s-]+")


@dataclass(frozen=True)
class _Sent:
    """The newest request of a caller; the next one is stored as a difference to it."""

    number: int
    objects: Sequence[object]
    """The sources of the parts: the same object makes the same part."""
    digests: Sequence[bytes]


async def recorded(
    request: ProviderRequest,
    send: Callable[[ProviderRequest], Awaitable[AIMessage]],
    *,
    session: Session,
    role: ModelRole | None,
    about: Mapping[str, Any],
) -> AIMessage:
    """Send a request, and write it with its reply into the thread's recording.

    In a replay nothing is sent, and the recording answers. `about` is plain JSON that the recording
    also keeps. ModelError: the call failed for good.
    """
    # The node, the plan's step and the role, without ids of tasks.
    caller = " ".join(filter(None, (*_place(None), role)))
    if (replay := replaying.current_replay()) is not None:
        ask = partial(send, request)
        replayed = await replay.answer(caller, request_parts(request), _folders(session), ask)
        return cast("AIMessage", replayed)
    known = replaying.take_known_reply(caller)
    recorder = await _recorder(session)
    if recorder is None:
        return await send(request) if known is None else known
    model = request.model
    own = {"max_input_tokens": model.window, "image_inputs": model.sees_images}
    profile = {**(model.client.profile or {}), **own}
    await fact_of_run(session, f"profile of {model.name}", lambda: profile)
    answer: AIMessage | ModelError
    try:
        answer = await send(request) if known is None else known
    except ModelError as error:
        answer = error
    facts: dict[str, Any] = {
        **about,
        "place": run_path(),
        "checkpoint": checkpoint_lineage.outermost_checkpoint(get_config()),
        "handles": sorted(session.identities()),
    }
    if not session.is_nested:
        facts["limits"] = {name: getattr(session.settings, name) for name in LIMITS}
    if session.server_tools:
        facts["server_tools"] = session.server_tools
    await recorder.record(caller, request, answer, facts)
    if isinstance(answer, ModelError):
        raise answer
    return answer


async def awaited_fact(
    session: Session,
    name: str,
    read: Callable[[], Awaitable[T]],
    kept: Callable[[T], Any] = lambda found: found,
) -> T:
    """Read something of a run's environment, and write it into the recording.

    In a replay the recorded value is returned, and nothing is read. ReplayEndedError: a replayed
    run reads what the recorded one did not.

    Args:
        name: Names it; includes the plan's step if parallel steps read it.
        kept: Returns what the recording keeps of it, as plain JSON.
    """
    if (replay := replaying.current_replay()) is not None:
        return cast("T", replay.fact(name))  # it was written below
    found, recorder = await read(), await _recorder(session)
    if recorder is not None:
        await recorder.record_fact(name, kept(found))
    return found


async def recorded_fact(
    session: Session,
    name: str,
    read: Callable[[], T],
    kept: Callable[[T], Any] = lambda found: found,
) -> T:
    """Do as `awaited_fact` for a read that blocks, in another OS thread.

    As reading has no effect, a replay reads what the recorded run did not read.
    """
    replay = replaying.current_replay()
    if replay is not None and not replay.has_fact(name):
        return await asyncio.to_thread(read)
    return await awaited_fact(session, name, partial(asyncio.to_thread, read), kept)


async def fact_of_run(
    session: Session,
    name: str,
    read: Callable[[], T],
    kept: Callable[[T], Any] = lambda found: found,
) -> T:
    """Do as `recorded_fact`, once for each run of a session."""
    if session.find_cached((Recorder, name)) is None:
        found = await recorded_fact(session, name, read, kept)
        session.cached((Recorder, name), lambda: (found,))
    return cast("T", session.find_cached((Recorder, name))[0])  # as it was put there


class Recorder:
    """Records the model calls of one run on a thread.

    `newest` are the newest requests of this process on the thread, by caller.
    """

    def __init__(self, records: ModelCallRecords, thread: str, newest: dict[str, _Sent]) -> None:
        self._records, self._thread, self._newest = records, thread, newest
        self._adding = set[str]()
        """Callers whose newest calls are on their way to the database."""

    async def record(
        self,
        caller: str,
        request: ProviderRequest,
        answer: AIMessage | ModelError,
        facts: Mapping[str, Any],
    ) -> None:
        """Write a model call, no later than the checkpoint that holds its reply.

        A call that cannot be written is missing in the recording; the run continues.
        """
        if caller in self._adding:  # this call is stored as a difference to the one before
            await self._records.wait_for_added()
        before = self._newest.pop(caller, None)
        shared, new, sent = _difference(before, request)
        base = before.number if before is not None and shared else None
        if isinstance(answer, ModelError):
            outcome: dict[str, Any] = {"failure": [answer.kind, answer.sentence]}
        else:
            outcome = {"reply": message_to_dict(answer)}
        call = NewCall(caller, base, shared, new, {**facts, **outcome})

        def note(written: int | BaseException) -> None:
            self._adding.discard(caller)
            if isinstance(written, int):
                self._newest[caller] = _Sent(written, *sent)
            else:
                self._note_failure("A model call", written)

        self._adding.add(caller)
        self._records.add(self._thread, call, note)

    async def record_fact(self, name: str, value: Any) -> None:
        """Write a fact about the run's environment, or leave it out if that fails."""
        try:
            await self._records.add_fact(self._thread, name, value)
        except LeaseLostError:
            raise
        except StorageError as error:  # a run does not end for its record
            self._note_failure("A fact", error)

    def _note_failure(self, what: str, error: BaseException) -> None:
        log.info("%s of thread %s was not recorded: %s", what, self._thread, error)


async def _recorder(session: Session) -> Recorder | None:
    """Return the recorder of the run that the calling node belongs to.

    None without a checkpointer: there is no thread to replay.
    """
    thread = checkpoint_lineage.checkpointed_thread(get_config())
    if thread is None:
        return None
    known: Recorder | None = session.find_cached(Recorder)
    if known is not None:
        return known
    url = session.settings.database
    records = await session.cached_off_loop(ModelCallRecords, lambda: open_model_call_records(url))
    newest = session.cached_across_runs((Recorder, url), dict[str, _Sent])
    if newest and not await records.has(thread, max(one.number for one in newest.values())):
        newest.clear()  # the thread was deleted, and starts again
    recorder = session.cached(Recorder, lambda: Recorder(records, thread, newest))
    if not session.is_nested:
        at = {"checkpoint": checkpoint_lineage.outermost_checkpoint(get_config())}
        await recorder.record_fact(FOLDERS, _folders(session) | at)
    return recorder


def with_recorded_folders(facts: dict[str, str], session: Session) -> dict[str, str]:
    """Return texts, in a replay with the folders' names of the recorded run."""
    if (replay := replaying.current_replay()) is None:
        return facts
    renamed: dict[str, str] = json.loads(
        replay.with_recorded_folders(json.dumps(facts), _folders(session))
    )
    return renamed


def _folders(session: Session) -> dict[str, str]:
    settings = session.settings
    return {"workspace": str(settings.workspace), "private": str(settings.private)}


def run_path() -> str:
    """Return which run inside the thread's it is: the nodes around it, and the plan's step."""
    return " ".join(filter(None, _place(-1)))


def _place(end: int | None) -> tuple[str, str]:
    """Return the names of nodes from the outermost to an index, and the plan's step."""
    config = get_config()
    namespace = str(config.get("configurable", {}).get("checkpoint_ns", ""))
    nodes = "/".join(task.partition(":")[0] for task in namespace.split("|")[:end])
    return nodes, plan_step_of(config)


def request_parts(request: ProviderRequest) -> list[Part]:
    return [_part(one) for one in _objects(request)]


def recorded_answer(facts: Mapping[str, Any]) -> AIMessage | ModelError:
    if "failure" in facts:
        return ModelError(*facts["failure"])
    (reply,) = messages_from_dict([facts["reply"]])
    return cast("AIMessage", reply)  # nothing else is recorded


def _objects(request: ProviderRequest) -> list[Any]:
    about = {"role": "model", "name": request.model.name, "options": dict(request.options)}
    return [about, request.tools, *request.messages]


def _difference(
    before: _Sent | None, request: ProviderRequest
) -> tuple[int, list[Part], tuple[list[Any], list[bytes]]]:
    """Return how many parts a request shares with the one before, the others, and what it holds."""
    objects = _objects(request)
    known: Sequence[object] = () if before is None else before.objects
    digests = [] if before is None else [*before.digests[: len(objects)]]
    shared = len(digests)
    # Most are the same objects as before, and there are thousands.
    for position in compress(range(shared), map(operator.is_not, known, objects)):
        if _digest(_part(objects[position])) != digests[position]:
            shared = position
            break
    new = [_part(one) for one in objects[shared:]]
    return shared, new, (objects, [*digests[:shared], *map(_digest, new)])


def _digest(part: Part) -> bytes:
    return hashlib.sha256(json.dumps(part, sort_keys=True, default=str).encode()).digest()


def _part(one: Any) -> Part:
    if isinstance(one, BaseMessage):
        return _message_part(one)
    return cast("Part", one) if isinstance(one, dict) else {"role": "tools", "tools": list(one)}


def _message_part(message: BaseMessage) -> Part:
    """Return the parts of a message that a provider is sent: no ids, and none of our marks."""
    text = message.content if isinstance(message.content, str) else None
    content = text if text is not None else without_data(message.content)
    part: Part = {"role": message.type, "content": content}
    if isinstance(message, AIMessage):
        made = [*message.tool_calls, *message.invalid_tool_calls]
        part["calls"] = [{key: call[key] for key in ("id", "name", "args")} for call in made]
        part["kwargs"] = message.additional_kwargs
    if isinstance(message, ToolMessage):
        part |= {"call": message.tool_call_id, "status": message.status}
    return {key: value for key, value in part.items() if value}


def without_data(content: Any) -> Any:
    """Return content with digests in place of pictures and sounds."""
    if isinstance(content, dict):
        return {key: without_data(one) for key, one in as_object(content).items()}
    if isinstance(content, list | tuple):
        return [without_data(one) for one in cast("Sequence[Any]", content)]
    if isinstance(content, str) and len(content) > _DATA_CHARS and _DATA.fullmatch(content):
        return f"{len(content)} characters, sha256 {hashlib.sha256(content.encode()).hexdigest()}"
    return content
