"""What the notebooks use: runs shown live, graphs drawn offline, models that need no key.

A run's events are rendered as HTML. What models write is rendered as Markdown without HTML and
pictures; everything else is escaped.
"""

import asyncio
import contextlib
import importlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from markdown_it import MarkdownIt

from openmanus_graph import testing
from openmanus_graph.backends.files.file_content import data_url
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.service.run_view import StepEventTagger
from openmanus_graph.planning.plan import MARKS
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.runtime.output import money
from openmanus_graph.runtime.workspace import Workspace, read_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import no_usage
from openmanus_graph.state.planning import shown_after

__all__ = ["recorded_model", "show_graph", "show_run"]

SHOWN_CHARS = 2000
"""Of one output; the rest is in the conversation."""
LINE_CHARS = 80
"""Of a call's arguments next to its name."""
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
"""Pictures are left out: fetching one would send its address, with any data in it, to a server."""

Block = dict[str, Any]


@dataclass
class RunPage:
    blocks: list[Block] = field(default_factory=list[Block])
    """Each has a `kind` (text, call, subagent, notice, plan) and its `plan_step`, or ""."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one event of the graph; `plan_step` names the step it comes from."""
        place = str(event.get("plan_step", ""))
        match event["type"]:
            case "think_start":
                self._begin_thought(place, event["step"])
            case "token":
                self._thought(place)["text"] += event["text"]
            case "think_end":
                self._thought(place).update(text=event["text"], done=True)
            case "tool_start" | "tool_end":
                self._call(place, event["call_id"]).update(event)
            case "step_start" if event.get("namespace"):
                self._append("subagent", place, inner=f"{place}/{event['id']}".lstrip("/"))
            case "notice" if event["level"] != "info":
                self._append("notice", place, text=event["text"])
            case "plan" | "plan_change":
                self._plan(place, event)
            case _:
                pass

    def remove_answer(self, answer: str) -> None:
        """Remove the last text block if it is the answer, which is shown separately."""
        last = self.blocks[-1] if self.blocks else {}
        if (last.get("kind"), last.get("plan_step"), last.get("text")) == ("text", "", answer):
            self.blocks.pop()

    def html(self) -> str:
        """Render the events so far: the blocks of a plan's step are under that step."""
        inside: dict[str, list[Block]] = {}
        for block in self.blocks:
            inside.setdefault(block["plan_step"], []).append(block)
        parts = list(_rendered("", inside))
        for place in list(inside):  # of steps that no plan holds any more
            parts += [_small(escape(place)), *_rendered(place, inside)] if place in inside else []
        return f'<div style="font-size:13px;line-height:1.45">{"".join(parts)}</div>'

    def _append(self, kind: str, place: str, **fields: Any) -> Block:
        block: Block = {"kind": kind, "plan_step": place, **fields}
        self.blocks.append(block)
        return block

    def _find(self, kind: str, place: str) -> Iterator[Block]:
        """Yield the blocks of a kind in a place, the newest first."""
        for block in reversed(self.blocks):
            if block["kind"] == kind and block["plan_step"] == place:
                yield block

    def _open_thoughts(self, place: str) -> Iterator[Block]:
        return (block for block in self._find("text", place) if not block.get("done"))

    def _plan(self, place: str, event: Mapping[str, Any]) -> None:
        plan = next(self._find("plan", place), Block())
        if shown := shown_after(plan, event):
            (plan or self._append("plan", place)).update(shown)

    def _begin_thought(self, place: str, step: int) -> None:
        # Tokens of a model call that is made again do not count.
        dropped = [id(block) for block in self._open_thoughts(place) if block.get("step") == step]
        self.blocks = [block for block in self.blocks if id(block) not in dropped]
        self._append("text", place, text="", step=step)

    def _thought(self, place: str) -> Block:
        return next(self._open_thoughts(place), None) or self._append("text", place, text="")

    def _call(self, place: str, call_id: str) -> Block:
        """Return an open call; models may give calls of several steps the same id."""
        for block in self._find("call", place):
            if block["call_id"] == call_id and "ok" not in block:
                return block
        return self._append("call", place, call_id=call_id)


def final_html(values: Mapping[str, Any]) -> str:
    usage: Mapping[str, Any] = values.get("usage") or no_usage()
    tokens = usage["input_tokens"] + usage["output_tokens"]
    reason = f" ({escape(str(values['stop_reason']))})" if values.get("stop_reason") else ""
    said = [escape(str(values.get("status") or "waiting")) + reason, f"{tokens:,} tokens"]
    said.append(money(usage["cost_usd"]))
    answer = _MARKDOWN.render(str(values.get("answer") or ""))
    return _framed("#4a8", answer) + _small(" · ".join(said))


def question_html(asked: Mapping[str, Any]) -> str:
    """Render the `interrupt` event of a question."""
    calls = "".join(
        f"\n<code>{escape(call['tool'])}</code>\n{escape(_short(_arguments(call['args'])))}"
        for call in asked["calls"]
    )
    step = asked.get("plan_step")
    waiting = f"{escape(step)} waits" if step else "Waiting"
    text = f"{waiting}: {escape(asked['question'])}{calls}"
    return _framed("#c80", f'<div style="white-space:pre-wrap">{text}</div>')


def picture_html(name: str, media_type: str, data: bytes) -> str:
    source = data_url(data, escape(media_type))
    return (
        f'<figure style="margin:6px 0"><img src="{source}" style="max-width:640px" '
        f'alt="{escape(name)}"><figcaption>{_small(escape(name))}</figcaption></figure>'
    )


def _rendered(place: str, inside: dict[str, list[Block]]) -> Iterator[str]:
    for block in inside.pop(place, ()):
        match block["kind"]:
            case "plan":
                yield from _plan_html(block, inside)
            case "call":
                yield _call_html(block)
            case "subagent":
                content = "".join(_rendered(block["inner"], inside))
                yield _nested(_small(escape(block["inner"])), content, shown=True)
            case "notice":
                yield f'<div style="color:#a60">{escape(block["text"])}</div>'
            case _ if block["text"]:
                yield f'<div style="margin:4px 0">{_MARKDOWN.render(block["text"])}</div>'
            case _:
                pass


def _plan_html(plan: Block, inside: dict[str, list[Block]]) -> Iterator[str]:
    steps: list[Mapping[str, Any]] = plan["steps"]
    done = sum(step["status"] == "completed" for step in steps)
    count = _small(f"{done} of {len(steps)} completed")
    yield f'<div style="margin:8px 0 2px"><b>{escape(plan.get("title", ""))}</b> {count}</div>'
    for step in steps:
        place = f"{plan['plan_step']}/{step['id']}".lstrip("/")
        yield _step_html(step, "".join(_rendered(place, inside)))


def _step_html(step: Mapping[str, Any], content: str) -> str:
    after = f"after {', '.join(step['depends_on'])}" if step["depends_on"] else ""
    duration = f"{step['seconds']:.1f} s" if step.get("seconds") else ""
    facts = filter(None, (str(step["executor"]), after, duration))
    line = (
        f'<span style="font-family:monospace">{MARKS.get(step["status"], "[ ]")}</span> '
        f"{escape(step['text'])} {_small(escape(' · '.join(facts)))}"
    )
    if notes := step.get("notes"):
        content += f'<div style="color:#a60">{escape(notes)}</div>'
    if not content:
        return f'<div style="margin:2px 0 2px 16px">{line}</div>'
    return _nested(line, content, shown=step["status"] != "completed")


def _nested(line: str, content: str, *, shown: bool) -> str:
    return (
        f'<details{" open" if shown else ""} style="margin:2px 0"><summary>{line}</summary>'
        f'<div style="margin-left:12px;border-left:1px solid #8888;padding-left:12px">{content}'
        "</div></details>"
    )


def _call_html(call: Block) -> str:
    done = f"{'✓' if call['ok'] else '✗'} {call['seconds']:.1f} s" if "ok" in call else "…"
    args = call.get("args", {})
    given = _arguments(args)
    line = _small(escape(_short(" ".join(given.split()), LINE_CHARS)))
    shown = f"{_short(given)}\n\n{_short(call.get('output', ''))}"
    return (
        f'<details style="margin:2px 0"><summary><code>{escape(call.get("tool", ""))}</code> '
        f'{_small(done)} {line}</summary><pre style="white-space:pre-wrap;margin:2px 12px">'
        f"{escape(shown)}</pre></details>"
    )


def _framed(colour: str, html: str) -> str:
    style = f"border-left:3px solid {colour};padding-left:8px;margin:4px 0"
    return f'<div style="{style}">{html}</div>'


def _small(html: str) -> str:
    return f'<small style="opacity:.7">{html}</small>'


def _arguments(args: Mapping[str, Any]) -> str:
    """Return arguments with a line each; texts are shown as they are, with their own lines."""

    def shown(value: Any) -> str:
        if isinstance(value, str):
            return f"\n{value}" if "\n" in value else f" {value}"
        return f" {json.dumps(value, ensure_ascii=False, default=str)}"

    return "\n".join(f"{name}:{shown(value)}" for name, value in args.items())


def _short(text: str, chars: int = SHOWN_CHARS) -> str:
    return text if len(text) <= chars else f"{text[:chars]} …"


ipython: Any = importlib.import_module("IPython.display")  # its functions have no types

REFRESH_S = 0.2
"""A page is sent to the notebook no more often."""
MAX_PICTURE_BYTES = 2_000_000
"""A larger picture is not shown."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")

Event = dict[str, Any]
Graph = CompiledStateGraph[Any, Any, Any, Any]


def show_graph(graph: Graph) -> None:
    """Draw a graph, offline, and write its edges below: not every viewer renders Mermaid."""
    drawn = graph.get_graph()
    ipython.display(ipython.Markdown(f"```mermaid\n{drawn.draw_mermaid()}```"))
    edges = "\n".join(f"{edge.source} → {edge.target}" for edge in drawn.edges)
    ipython.display(ipython.HTML(f"<pre>{escape(edges)}</pre>"))


async def show_run(
    graph: Graph,
    given: Any,
    *,
    thread: str | None = None,
    checkpoint: str | None = None,
    context: Context | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> dict[str, Any]:
    """Run a graph and show it while it runs: thoughts, tool calls, plan, pictures, answer.

    Args:
        graph: Made by one of the builders.
        given: The task as text, a graph input, a `Command`, or None to continue.
        thread: The thread's id; by default a new one. Only a graph with a checkpointer can continue
            a thread or take an answer.
        checkpoint: The id of the checkpoint to go back to; by default the newest.
        context: Settings of this run.
        on_event: Called with each event of the graph, as it comes (`docs/events.md`).

    Returns:
        The state's values: `status, answer, messages, artifacts` and so on.
    """
    context = context or Context()
    thread = thread or f"notebook-{secrets.token_hex(3)}"
    where = {"thread_id": thread} | ({"checkpoint_id": checkpoint} if checkpoint else {})
    config: RunnableConfig = {"configurable": where, "recursion_limit": RECURSION_LIMIT}
    task = {"messages": [HumanMessage(given)]} if isinstance(given, str) else given
    handle = ipython.DisplayHandle()
    handle.display(ipython.HTML(""))
    values = await _follow(graph, task, config, context, handle, on_event)
    if values.get("__interrupt__") and graph.checkpointer:
        # Sort questions by their calls; they came in the order in which they were asked.
        state = await graph.aget_state({"configurable": {"thread_id": thread}})
        values["__interrupt__"] = list(state.interrupts)
    shown = [question_html(interrupt_event(one)) for one in values.get("__interrupt__", ())]
    if not shown:
        shown = [*await asyncio.to_thread(_pictures, values, context, thread), final_html(values)]
    for html in shown:
        ipython.display(ipython.HTML(html))
    return values


async def _follow(
    graph: Graph,
    task: Any,
    config: RunnableConfig,
    context: Context,
    handle: Any,
    on_event: Callable[[Event], object] | None,
) -> dict[str, Any]:
    page, tagger = RunPage(), StepEventTagger()
    values: dict[str, Any] = {}
    waiting: dict[str, Any] = {}  # calls that wait at the same time are shown one by one
    parts: Any = graph.astream(
        task,
        config,
        context=context,
        stream_mode=["custom", "values"],
        subgraphs=True,
        version="v2",
        durability="sync" if graph.checkpointer else None,
    )
    refresher = asyncio.create_task(_refresh(page, handle))
    try:
        async for part in parts:
            data: Any = part["data"]
            if part["type"] == "values" and not part["ns"]:
                waiting |= {asked.id: asked for asked in part.get("interrupts", ())}
                values = {**data, "__interrupt__": list(waiting.values())}
            event = tagger.event(part["ns"], data) if part["type"] == "custom" else None
            if event is not None:
                page.add(event)
                if on_event is not None:
                    on_event(event)
    finally:
        refresher.cancel()
        page.remove_answer(str(values.get("answer")))
        handle.update(ipython.HTML(page.html()))
    return values


async def _refresh(page: RunPage, handle: Any) -> None:
    """Send the page to the notebook whenever it has changed."""
    shown = ""
    while True:
        html = page.html()
        if html != shown:
            handle.update(ipython.HTML(html))
        shown = html
        await asyncio.sleep(REFRESH_S)


def _pictures(values: dict[str, Any], context: Context, thread: str) -> Sequence[str]:
    workspace = Workspace.of(resolve_settings(context, thread))
    found: list[str] = []
    for artifact in values.get("artifacts") or ():
        path, media_type = artifact["path"], artifact["media_type"]
        if media_type in PICTURES and artifact["size"] <= MAX_PICTURE_BYTES:
            with contextlib.suppress(ToolError):  # it was deleted since
                data = read_file(workspace, path, MAX_PICTURE_BYTES)
                found.append(picture_html(path, media_type, data))
    return found


OWN_MODEL = ("OPENMANUS_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
"""A notebook uses the reader's own model as soon as one of these is set."""


def recorded_model(name: str) -> testing.RecordedChatModel | testing.RecordedPlanModel | None:
    """Return the recorded model of a notebook, or None if a real one is configured.

    None as `Context.model` means the model of the environment and the configuration files.
    ConfigError if there is no such recording.
    """
    if any(os.environ.get(variable) for variable in OWN_MODEL):
        return None
    folder = resources.files("openmanus_graph.interfaces.notebook") / "recordings"
    with resources.as_file(folder) as recordings:
        path = recordings / f"{name}.json"
        if not path.is_file():
            known = ", ".join(sorted(found.stem for found in recordings.glob("*.json")))
            raise ConfigError(f"There is no recording {name!r}. Available: {known}.")
        if "conversations" in json.loads(path.read_text("utf-8")):
            # Charts go to the model as to one that sees them.
            return testing.RecordedPlanModel(
                testing.load_conversations(path), profile={"image_inputs": True}
            )
        return testing.RecordedChatModel(testing.load_recording(path))
