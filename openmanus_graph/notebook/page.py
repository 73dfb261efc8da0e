"""A run as HTML: what the events said so far. Pure; everything is escaped, nothing is run."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from openmanus_graph.state.reducers import no_usage

MARKS = {"not_started": "[ ]", "in_progress": "[→]", "completed": "[✓]", "blocked": "[!]"}
SHOWN_CHARS = 2000
"""Of one output; the rest is in the conversation."""


@dataclass
class RunPage:
    """Collects events and renders them."""

    blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Each with a `kind`: text, call, notice."""
    plan: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in one event of the graph."""
        match event["type"]:
            case "think_start":
                self._drop_void(event)
                self.blocks.append({"kind": "text", "text": "", "step": _place(event)})
            case "token":
                self._thought(event)["text"] += event["text"]
            case "think_end":
                self._thought(event).update(text=event["text"], done=True)
            case "tool_start":
                self.blocks.append({"kind": "call", **event})
            case "tool_end":
                self._call(event["call_id"]).update(event)
            case "notice" if event["level"] != "info":
                self.blocks.append({"kind": "notice", "text": event["text"]})
            case "plan":
                self.plan = event["steps"]
            case _:
                pass

    def leave_out(self, answer: str) -> None:
        """Take out the text that is shown as the answer, if it came last."""
        if self.blocks and self.blocks[-1].get("text") == answer:
            self.blocks.pop()

    def html(self) -> str:
        """Render what there is."""
        parts = [self._plan_html()] if self.plan else []
        parts += [_RENDERERS[block["kind"]](block) for block in self.blocks]
        return f'<div style="font-size:13px;line-height:1.45">{"".join(parts)}</div>'

    def _drop_void(self, event: Mapping[str, Any]) -> None:
        """Tokens of a step that is asked for again are void."""
        place = _place(event)
        self.blocks = [
            block for block in self.blocks if block.get("step") != place or block.get("done")
        ]

    def _thought(self, event: Mapping[str, Any]) -> dict[str, Any]:
        inside = event.get("plan_step")
        block: dict[str, Any]
        for block in reversed(self.blocks):
            if block["kind"] == "text" and not block.get("done") and block["step"][0] == inside:
                return block
        new: dict[str, Any] = {"kind": "text", "text": "", "step": (inside, 0)}
        self.blocks.append(new)
        return new

    def _call(self, call_id: str) -> dict[str, Any]:
        block: dict[str, Any]
        for block in reversed(self.blocks):
            if block["kind"] == "call" and block["call_id"] == call_id and "ok" not in block:
                return block
        new: dict[str, Any] = {"kind": "call"}
        self.blocks.append(new)
        return new

    def _plan_html(self) -> str:
        rows = "".join(
            f"<div>{MARKS.get(step['status'], '[ ]')} {escape(step['text'])} "
            f"<small>{escape(step['executor'])}</small></div>"
            for step in self.plan
        )
        return f'<div style="font-family:monospace;margin:4px 0">{rows}</div>'


def final_html(values: Mapping[str, Any]) -> str:
    """Render how a run ended."""
    usage: Mapping[str, Any] = values.get("usage") or no_usage()
    tokens = usage["input_tokens"] + usage["output_tokens"]
    reason = f" ({escape(str(values['stop_reason']))})" if values.get("stop_reason") else ""
    said = [escape(str(values.get("status") or "waiting")) + reason, f"{tokens:,} tokens"]
    said.append(f"${usage['cost_usd']:.4f}")
    answer = escape(str(values.get("answer") or ""))
    return (
        f'<div style="white-space:pre-wrap;border-left:3px solid #4a8;padding-left:8px">{answer}'
        f"</div><small>{' · '.join(said)}</small>"
    )


def question_html(question: str) -> str:
    """Render a question that the run waits with."""
    shown = escape(question)
    return f'<div style="border-left:3px solid #c80;padding-left:8px">Waiting: {shown}</div>'


def picture_html(name: str, media_type: str, data: bytes) -> str:
    """Render a picture that the run made."""
    source = f"data:{escape(media_type)};base64,{base64.b64encode(data).decode()}"
    return (
        f'<figure style="margin:6px 0"><img src="{source}" style="max-width:640px" '
        f'alt="{escape(name)}"><figcaption><small>{escape(name)}</small></figcaption></figure>'
    )


def _place(event: Mapping[str, Any]) -> tuple[Any, int]:
    return (event.get("plan_step"), event["step"])


def _text_html(block: Mapping[str, Any]) -> str:
    text = escape(block["text"])
    return f'<div style="white-space:pre-wrap;margin:4px 0">{text}</div>' if text else ""


def _call_html(block: Mapping[str, Any]) -> str:
    done = f"{'✓' if block['ok'] else '✗'} {block['seconds']:.1f} s" if "ok" in block else "…"
    args = escape(_short(json.dumps(block.get("args", {}), ensure_ascii=False, indent=1)))
    output = escape(_short(block.get("output", "")))
    return (
        f'<details style="margin:2px 0"><summary><code>{escape(block.get("tool", ""))}</code> '
        f'<small>{done}</small></summary><pre style="white-space:pre-wrap;margin:2px 12px">'
        f"{args}\n\n{output}</pre></details>"
    )


def _notice_html(block: Mapping[str, Any]) -> str:
    return f'<div style="color:#a60">{escape(block["text"])}</div>'


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} …"


_RENDERERS = {"text": _text_html, "call": _call_html, "notice": _notice_html}
