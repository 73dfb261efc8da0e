"""The run that is killed: one line per tool call, and a model that looks before it repeats one.

A call that ran twice, or was lost, shows in the files. The model keeps no state: it decides by the
conversation it is sent, as a careful one does.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply

THREAD = "t"
TASK = "write the lines"
STEPS = (("p1", "b1", "e1", "f1", "r1"), ("c1", "b2"), ("p2", "b3", "e2", "r2"))
"""The lines that each reply of the model writes: Python, bash, editor (two files), an external
tool; `c1` is a question to the person."""
FILES = {"p": "python.log", "b": "bash.log", "e": "notes.md", "f": "plan.md", "r": "ring.log"}
ANSWER = "c1 blue"
WINDOW, NEARLY_FULL = 2600, 1900
"""Tokens of the model, and what the last step's reply reports: then the run compacts."""
LOOK = Call("bash", {"command": "tail -n +1 *.log *.md"})
WORK_S = 0.08
"""How long a call takes after its effect: a moment to be killed in."""

RING = f'''
import asyncio
from typing import Any

from langgraph.prebuilt import ToolRuntime

from openmanus_graph import manus_tool
from openmanus_graph.runtime.tool_runtime import call_runtime


@manus_tool(effect="external", resource="bell")
async def ring(line: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Ring, and wait while there is a file `hold`.

    Args:
        line: What to ring.
    """
    root = call_runtime(runtime).session.workspace.root
    with (root / "ring.log").open("a") as file:
        file.write(line + "\\n")
    await asyncio.sleep({WORK_S})
    while (root / "hold").exists():
        await asyncio.sleep(0.01)
    return f"rang {{line}}"
'''


def call_for(line: str) -> Call:
    """Return the call that writes a line."""
    path = FILES.get(line[0], "")
    if line[0] == "p":
        write = f"open('{path}', 'a').write('{line}\\n')"
        code = f"import time\n{write}\ntime.sleep({WORK_S})\n'{line}'"
        return Call("python_execute", {"code": code})
    if line[0] == "b":
        return Call("bash", {"command": f"echo {line} | tee -a {path}; sleep {WORK_S}"})
    if line[0] == "c":
        return Call("ask_human", {"inquire": "Which colour?"})
    if line[0] == "r":
        return Call("ring", {"line": line})
    args = {"command": "insert", "path": path, "insert_line": int(line[1]), "new_str": line}
    return Call("str_replace_editor", args)


def asks_for_summary(body: Mapping[str, Any]) -> bool:
    """Say whether a request is the one that writes the notes of a compaction."""
    return "Write the notes now" in str(body["messages"][-1]["content"])


def decide(body: Mapping[str, Any]) -> Reply:
    """Answer as a careful model does: what is unknown is looked at, what is missing is done."""
    messages: list[dict[str, Any]] = body["messages"]
    if asks_for_summary(body):
        return Reply(f"Seen: {' '.join(sorted(_seen(messages)))}.")
    looks = _look_ids(messages)
    seen, doubt, look = set[str](), False, ""
    for position, message in enumerate(messages):
        content = str(message["content"])
        if position == 1 and "Notes of what has been done" in content:
            seen, doubt = _lines(content.partition("Seen:")[2]), True
        if message["role"] != "tool":
            continue
        if "cut off" in content:
            doubt = True
        elif message["tool_call_id"] in looks:
            seen, doubt, look = seen | _lines(content), False, content
        else:
            seen |= _lines(content)
            look = ""
    return _next(seen, doubt, look, compacted="Notes of what" in str(messages[1]["content"]))


def _next(seen: set[str], doubt: bool, look: str, *, compacted: bool) -> Reply:
    if doubt:
        return Reply("I look.", calls=(LOOK,))
    for step, lines in enumerate(STEPS):
        missing = tuple(call_for(line) for line in lines if line not in seen)
        if missing:
            full = step == len(STEPS) - 1 and not compacted
            tokens = NEARLY_FULL if full else 100
            usage = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
            return Reply(f"Step {step + 1}.", calls=missing, usage=usage, piece_size=40)
    return Reply(f"All is there:\n{look}", piece_size=400) if look else Reply(calls=(LOOK,))


def _look_ids(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    made = [call for message in messages for call in message.get("tool_calls") or ()]
    return {call["id"] for call in made if "tail -n" in call["function"]["arguments"]}


def _lines(text: str) -> set[str]:
    return set(re.findall(r"\b[pbefrc]\d\b", text))


def _seen(messages: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the lines that results and earlier notes name; calls name some not written yet."""
    results = (str(message["content"]) for message in messages if message["role"] == "tool")
    return _lines("\n".join((str(messages[1]["content"]).partition("Seen:")[2], *results)))


def bring_tool(cli: Cli) -> None:
    """Put a package on the command's path that brings the external tool `ring`."""
    place = cli.root / "packages"
    info = place / "ring_tool-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "ring_tool.py").write_text(RING)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ring-tool\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[openmanus_graph.tools]\nring = ring_tool:ring\n")
    cli.env["PYTHONPATH"] = str(place)
