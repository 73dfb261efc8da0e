"""The user's hooks: what they see, what they decide, and what they cannot do."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph, manus_tool
from openmanus_graph.config import homes
from openmanus_graph.config.claude_files import find_hooks, usable_hooks
from openmanus_graph.config.files import config_home
from openmanus_graph.interfaces.cli.skills import trust
from tests.support.graphs import Ran, calls, run_graph, scripted

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
WILD = Path(__file__).parent.parent / "wild"
BASH = calls(("bash", {"command": "echo hello"}))


def write_hooks(path: Path, **events: Any) -> None:
    """Write a settings file: for each event a matcher, a command, and more keys of the hook."""
    table = {
        event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}]
        for event, (matcher, command, more) in events.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": table}))


def own_hook(event: str, command: str, matcher: str = "", **more: Any) -> None:
    write_hooks(config_home() / "settings.json", **{event: (matcher, command, more)})


def says(event: str, **fields: Any) -> str:
    """Return a command that prints JSON as a hook does."""
    given = {"hookSpecificOutput": {"hookEventName": event, **fields}}
    return f"cat > seen.json; echo '{json.dumps(given)}'"


def test_trust_of_hooks_of_several_events_holds_in_every_process() -> None:
    events = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart")
    write_hooks(Path(".claude/settings.json"), **{one: ("", "true", {}) for one in events})
    assert trust() == 0
    look = "from openmanus_graph.config.claude_files import usable_hooks as u; print(len(u()[0]))"
    for seed in "123456":  # texts in a set have another order in each process
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("5\n", "")


def text_of(path: str) -> str | None:
    found = Path(path)
    return found.read_text() if found.exists() else None


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def seen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of("seen.json") or "")
    return found


def decisions(ran: Ran) -> list[str]:
    return [event["hook"]["decision"] for event in ran.events if "hook" in event]


def graph_with(*tools: Any, kept: bool = True) -> Any:
    return build_manus_graph(tools=tools, checkpointer=InMemorySaver() if kept else None)


@pytest.fixture
def paid() -> list[str]:
    return []


@pytest.fixture
def pay(paid: list[str]) -> Any:
    @manus_tool(effect="external", sends_to=())
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        paid.append(str(amount))
        return f"paid {amount}"

    return pay


PAY = calls(("pay", {"amount": 5}))


async def test_documented_examples_of_claude_code_run_unchanged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    write("ada/.claude/settings.json", "{}")
    shutil.copytree(WILD / "hooks", ".claude/hooks")
    shutil.copy(WILD / "hooks/settings.json", ".claude/settings.json")
    edits = calls(
        ("bash", {"command": "echo hello"}),
        ("str_replace_editor", {"command": "create", "path": "a.ts", "file_text": "let a;\n"}),
        ("str_replace_editor", {"command": "create", "path": "b.md", "file_text": "plain"}),
        (
            "str_replace_editor",
            {"command": "create", "path": "package-lock.json", "file_text": "KEY=1"},
        ),
    )
    graph = build_manus_graph()
    untrusted = await run_graph(graph, edits, "done")
    assert "(openmanus trust)" in usable_hooks()[1][0]
    assert (text_of("work/package-lock.json"), decisions(untrusted)) == ("KEY=1", [])
    shutil.rmtree("work")

    assert trust() == 0
    ran = await run_graph(graph, edits, "done")
    log = text_of("ada/.claude/bash-command-log.txt")
    assert log == "echo hello - No description\n"
    assert text_of("work/a.ts") == "let a;\n// formatted\n"
    assert (text_of("work/b.md"), text_of("work/package-lock.json")) == ("plain", None)
    assert "was not run. A hook of the user forbids it" in ran.results()[3]
    assert "Branch: main\nCurrent time: noon" in ran.model.requests[0][1].text
    refused = await run_graph(graph, "done", task="My password: hunter2")
    assert refused.values["answer"] == "The prompt holds a secret."
    assert (refused.model.requests, "hunter2" in str(refused.messages)) == ([], False)


async def test_a_changed_script_is_not_run_and_the_call_neither() -> None:
    script = ".claude/guard.sh"
    write_hooks(Path(".claude/settings.json"), PreToolUse=("Bash", "sh .claude/guard.sh", {}))
    write(script, "echo ran > ran.txt")
    assert trust() == 0

    def change(_: Any) -> Any:
        write(script, "echo evil > evil.txt")
        return BASH

    ran = await run_graph(build_manus_graph(), change, "done")
    assert text_of("evil.txt") is None
    assert "its files have changed" in next(one["text"] for one in ran.events if "hook" in one)
    assert "was not run" in ran.results()[0]
    assert "(openmanus trust)" in usable_hooks()[1][0], "and later runs do not use it"


async def test_tools_cannot_change_what_a_trusted_hook_runs() -> None:
    write("guard.sh", "true")
    write_hooks(Path(".claude/settings.json"), PreToolUse=("Bash", "./guard.sh", {}))
    trust()
    edit = {"command": "create", "path": "guard.sh", "file_text": "evil"}
    ran = await run_graph(
        build_manus_graph(), calls(("str_replace_editor", edit)), "done", workspace="."
    )
    assert text_of("guard.sh") == "true"
    assert "out of reach" in ran.results()[0]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_hook_sees_a_call_as_claude_code_names_it(kept: bool) -> None:
    own_hook("PreToolUse", "cat > seen.json", "Bash")
    await run_graph(build_manus_graph(checkpointer=InMemorySaver() if kept else None), BASH, "done",
                    config=CONFIG)  # fmt: skip
    assert (seen()["tool_name"], seen()["tool_input"]) == ("Bash", {"command": "echo hello"})
    assert seen()["hook_event_name"] == "PreToolUse"
    assert seen()["cwd"] == str(Path.cwd() / "work")
    assert seen()["permission_mode"] == "default"
    own_hook("PreToolUse", "cat > seen.json", "bas.")
    await run_graph(build_manus_graph(), BASH, "done")
    assert seen()["tool_name"] == "Bash", "a matcher may also name our tools"


async def test_our_settings_and_keys_are_not_in_a_hooks_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENMANUS_SECRET_SHOP", "hunter2@shop.example")
    monkeypatch.setenv("MINE", "kept")
    own_hook("PreToolUse", "env > env.txt", "Bash")
    await run_graph(build_manus_graph(), BASH, "done")
    given = text_of("env.txt") or ""
    assert ("hunter2" in given, "MINE=kept" in given) == (False, True)
    assert f"CLAUDE_PROJECT_DIR={Path.cwd()}" in given


async def test_exit_code_2_refuses_a_call_for_good(pay: Any, paid: list[str]) -> None:
    own_hook("PreToolUse", "echo over the limit >&2; exit 2", "pay")
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert (paid, "over the limit" in ran.results()[0]) == ([], True)
    assert decisions(ran) == ["deny"]
    database = sqlite3.connect(homes.openmanus_home() / "openmanus.db")
    rows = database.execute("SELECT outcome FROM ledger WHERE tool = 'pay'").fetchall()
    assert [json.loads(row[0])["decision"] for row in rows] == ["deny"]
    database.close()


async def test_allow_answers_only_the_tools_own_question(pay: Any, paid: list[str]) -> None:
    own_hook("PreToolUse", says("PreToolUse", permissionDecision="allow"), "pay")
    allowed = await run_graph(graph_with(pay), PAY, "done", config=CONFIG)
    assert (paid, allowed.values["status"]) == (["5"], "finished")
    for decision, expected in (("deny", "forbids it"), ("ask", None)):
        rules = ({"tool": "pay", "decision": decision},)
        graph = graph_with(pay)
        ran = await run_graph(graph, PAY, "done", config=CONFIG, policy_rules=rules)
        assert expected is None or expected in ran.results()[0]
        asked = (await graph.aget_state(CONFIG)).interrupts
        assert (paid, bool(asked)) == (["5"], expected is None)


async def test_ask_asks_although_the_policy_would_not(pay: Any, paid: list[str]) -> None:
    counted = "echo x >> runs.txt; " + says("PreToolUse", permissionDecision="ask")
    own_hook("PreToolUse", counted, "pay")
    graph, model = graph_with(pay), scripted(PAY, "done")
    await run_graph(graph, model=model, config=CONFIG, policy="auto")
    (question,) = (await graph.aget_state(CONFIG)).interrupts
    assert "A hook asks first" in question.value["question"]
    answer: Command[Any] = Command(resume={question.id: {"decisions": [{"type": "approve"}]}})
    await run_graph(graph, model=model, config=CONFIG, task=answer, policy="auto")
    assert (paid, text_of("runs.txt")) == (["5"], "x\n"), "a hook decides once"


async def test_changed_arguments_are_validated_and_judged_again(pay: Any, paid: list[str]) -> None:
    own_hook("PreToolUse", says("PreToolUse", updatedInput={"amount": 3}), "pay")
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert (paid, decisions(ran)) == (["3"], ["changed"])
    assert 'changed the arguments to {"amount": 3}' in ran.results()[0]
    rules = ({"tool": "pay", "args": {"amount": 3}, "decision": "deny"},)
    denied = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto",
                             policy_rules=rules)  # fmt: skip
    assert (paid, "forbids it" in denied.results()[0]) == (["3"], True)
    own_hook("PreToolUse", says("PreToolUse", updatedInput={"amount": "lots"}), "pay")
    wrong = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert (paid, "amount" in wrong.results()[0]) == (["3"], True)


async def test_a_changed_call_of_claude_codes_tool_is_one_of_ours() -> None:
    changed = {"file_path": "b.txt", "content": "other"}
    own_hook("PreToolUse", says("PreToolUse", updatedInput=changed), "Write")
    create = {"command": "create", "path": "a.txt", "file_text": "text"}
    await run_graph(build_manus_graph(), calls(("str_replace_editor", create)), "done")
    assert text_of("work/b.txt") == "other"
    assert text_of("work/a.txt") is None


async def test_several_hooks_run_in_parallel_and_the_strictest_counts(
    pay: Any, paid: list[str]
) -> None:
    # Each waits for the other.
    both = [
        "touch a; until [ -e b ]; do sleep 0.01; done; " + says("x", permissionDecision="allow"),
        "touch b; until [ -e a ]; do sleep 0.01; done; echo no >&2; exit 2",
    ]
    group = [{"hooks": [{"type": "command", "command": one} for one in both]}]
    own_hook("PreToolUse", "true")
    (config_home() / "settings.json").write_text(json.dumps({"hooks": {"PreToolUse": group}}))
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert (paid, sorted(decisions(ran))) == ([], ["allow", "deny"])


@pytest.mark.parametrize(
    ("command", "more", "words"),
    [
        ("sleep 1000 & sleep 1000", {"timeout": 0.2}, "its time limit"),
        ("echo oops >&2; exit 1", {}, "exit code 1. oops"),
        ("head -c 5000000 /dev/zero | tr '\\0' x", {}, ""),
        ("echo '{\"continue\": tru'", {}, "is not JSON"),
        ("/no/such/program", {"args": []}, "could not be run"),
    ],
)
async def test_a_broken_hook_is_reported_and_blocks_only_if_it_says_so(
    command: str, more: dict[str, Any], words: str, pay: Any, paid: list[str]
) -> None:
    own_hook("PreToolUse", command, "pay", **more)
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    texts = [one["text"] for one in ran.events if "hook" in one]
    assert (paid, len(texts), words in "".join(texts)) == (["5"], bool(words), True)
    assert len("".join(ran.results())) < 100
    own_hook("PreToolUse", command, "pay", onFailure="block", **more)
    await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert len(paid) == (1 if words else 2)


async def test_a_decision_counts_although_a_program_keeps_the_output_open(
    pay: Any, paid: list[str]
) -> None:
    own_hook("PreToolUse", "sleep 1000 & echo $! > pid; echo no >&2; exit 2", "pay", timeout=20)
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert (paid, decisions(ran)) == ([], ["deny"])
    assert not os.path.exists(f"/proc/{(text_of('pid') or '').strip()}/exe")  # noqa: ASYNC240, PTH110  # a test may block


async def test_a_hook_can_end_the_run(pay: Any, paid: list[str]) -> None:
    stop = json.dumps({"continue": False, "stopReason": "Office hours are over."})
    own_hook("PreToolUse", f"echo '{stop}'", "pay")
    ran = await run_graph(graph_with(pay), PAY, "never read", config=CONFIG, policy="auto")
    assert (paid, ran.values["status"], len(ran.model.requests)) == ([], "failed", 1)
    assert "Office hours" in "".join(one["text"] for one in ran.events if "hook" in one)


async def test_what_a_hook_says_after_a_call_is_read_with_the_result(pay: Any) -> None:
    said = {"decision": "block", "reason": "Write it down."}
    own_hook("PostToolUse", f"cat > seen.json; echo '{json.dumps(said)}'", "pay|other")
    ran = await run_graph(graph_with(pay), PAY, "done", config=CONFIG, policy="auto")
    assert ran.results() == ["paid 5\n[Hook of the user: Write it down.]"]
    assert seen()["tool_response"]["stdout"] == "paid 5"


STOP = """
import json, sys

given = json.load(sys.stdin)
lines = open(given["transcript_path"]).read().splitlines()
if not given["stop_hook_active"]:
    said = given["last_assistant_message"] + "? Run the tests. " + str(len(lines))
    print(json.dumps({"decision": "block", "reason": said}))
"""


async def test_a_stop_hook_lets_the_run_continue_once() -> None:
    write("stop.py", STOP)
    own_hook("Stop", "python3 stop.py")
    graph = build_manus_graph(checkpointer=InMemorySaver())
    ran = await run_graph(graph, "The work is done.", "All is tested.", config=CONFIG)
    assert ran.values["answer"] == "All is tested."
    assert "The work is done.? Run the tests. 2" in ran.model.requests[1][-1].text


async def test_a_notification_says_what_the_run_waits_for(pay: Any) -> None:
    own_hook("Notification", "cat > seen.json", "permission_prompt")
    await run_graph(graph_with(pay), PAY, config=CONFIG)
    assert "pay" in seen()["message"]


def test_what_is_not_run_here_is_named() -> None:
    prompt = {"hooks": [{"type": "prompt", "prompt": "ok?"}]}
    given = {"Stop": [prompt, prompt], "WorktreeCreate": []}
    path = config_home() / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": given}))
    found, warnings = usable_hooks()
    assert (found, len(warnings)) == ((), 1)
    assert warnings[0].count("only hooks of type command") == 1
    assert "no hooks of WorktreeCreate here" in warnings[0]
    path.write_text('{"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": "y"}]}]}}')
    assert "cannot be read" in usable_hooks()[1][0]
    write_hooks(path, PreToolUse=("[", "true", {}))
    assert "cannot be read" in usable_hooks()[1][0], "a matcher that is no pattern"
    path.write_text('{"disableAllHooks": true, "hooks": {"Stop": [{"hooks": [{"command": "x"}]}]}}')
    assert find_hooks() == []
