"""Rules about shell texts against what bash really starts: a corpus, and drawn lines."""

import random
from pathlib import Path

import pytest

from openmanus_graph.safety.policy import ProposedCall, evaluate_policy
from openmanus_graph.state.context import Policy, RuleDecision
from openmanus_graph.state.setting_declaration import Rule
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools.execution import bash
from tests.support.sampling import sampled
from tests.support.shell_bypasses import BYPASSES
from tests.support.shell_corpus import CORPUS, EVERYDAY, EVERYDAY_UNSEEN
from tests.support.shell_lines import drawn_lines
from tests.support.shell_oracle import ShellOracle
from tests.unit.test_policy import settings

REMOVE = Rule("bash", {"command": "rm *"}, "deny", "a test")
BATCH, BATCHES = 250, 40
MOST_BLOCKED = 0.12
"""Of a batch's lines that only mention the program (of all of them it is 4 %): where bash and the
parser read a line differently, a name in it counts as a command."""
MOST_COVERED = 2
"""Texts of a batch that bash cannot parse and that a rule allows: groups of nothing but comments,
which the parser takes, and bash does not."""


def decide(text: str, *rules: Rule, workspace: Path = Path("/w")) -> RuleDecision:
    call = ProposedCall("bash", {"command": text}, traits_of(bash))
    return evaluate_policy(call, settings(*(rules or (REMOVE,)), workspace=workspace)).decision


def rule(pattern: str, decision: RuleDecision = "deny") -> Rule:
    return Rule("bash", {"command": pattern}, decision, "a test")


@pytest.fixture
def oracle(tmp_path: Path) -> ShellOracle:
    return ShellOracle(tmp_path)


def test_the_corpus_is_large() -> None:
    assert sum(len(denied) + len(harmless) for denied, harmless in CORPUS.values()) >= 450
    assert all(denied and harmless for denied, harmless in CORPUS.values())


@pytest.mark.parametrize("construct", CORPUS)
@pytest.mark.slow
def test_a_rule_sees_what_bash_starts(construct: str, oracle: ShellOracle) -> None:
    denied, harmless = CORPUS[construct]
    started = [one.denied for one in oracle.run([*denied, *harmless])]
    assert started == [True] * len(denied) + [False] * len(harmless), "the corpus itself"
    assert [text for text in denied if decide(text) == "allow"] == []
    assert [text for text in harmless if decide(text) != "allow"] == []


@pytest.mark.slow
def test_no_line_that_was_written_to_be_overlooked_is(oracle: ShellOracle) -> None:
    assert [one.denied for one in oracle.run(BYPASSES)] == [True] * len(BYPASSES)
    assert [text for text in BYPASSES if decide(text) == "allow"] == []


@pytest.mark.parametrize(
    "text",
    [
        "uv run rm x", "uv --directory a run --with b rm x", "poetry run rm x", "npx --call 'rm x'",
        "dotenv -f .env run rm x", "conda run -n a rm x", "npx rm x", "npx -c 'rm x'",
        "pnpm exec rm x", "bundle exec rm x", "mise exec -- rm x", "direnv exec . rm x",
        "tmux new -d 'rm x'", "tmux send-keys 'rm x' Enter", "screen -dm rm x", "npm exec -- rm x",
        "sg users -c 'rm x'", "sg users 'rm x'",
        "at now <<< 'rm x'", "crontab <<< '* * * * * rm x'",
        "nix-shell --run 'rm x'", "docker run --rm -v .:/w img rm x", "podman exec box rm x",
        "setarch x86_64 rm x", "ssh-agent rm x", "valgrind -q rm x", "hyperfine 'rm x'",
        "ls | entr rm x", "ls | entr -s 'rm x'", "perf stat -o f rm x", "xargs uv run rm < x",
    ],
)  # fmt: skip
def test_programs_that_run_others_are_seen_through(text: str) -> None:
    assert decide(text) != "allow"


@pytest.mark.parametrize(
    "text",
    [
        "uv pip install rm", "uv sync; uv run pytest", "npm install rm", "docker ps", "tmux ls",
        "crontab -l", "conda install -n a rm", "poetry add rm", "perf report", "yarn add rm",
    ],
)  # fmt: skip
def test_their_other_subcommands_run_none(text: str) -> None:
    assert decide(text) == "allow"


def test_everyday_lines_are_not_asked_about() -> None:
    rules = (REMOVE, rule("rm -rf*"), rule("git push*", "ask"))
    assert [text for text in EVERYDAY if decide(text, *rules) != "allow"] == []
    assert {decide(text, *rules) for text in EVERYDAY_UNSEEN} == {"ask"}


@pytest.mark.parametrize("batch", sampled(range(BATCHES), 1, "shell lines"))
@pytest.mark.slow
def test_no_drawn_line_starts_a_denied_program(batch: int, oracle: ShellOracle) -> None:
    lines = list(drawn_lines(random.Random(f"shell lines {batch}"), BATCH))
    results = list(zip(lines, oracle.run([line.text for line in lines]), strict=True))
    started = [line for line, one in results if one.denied]
    assert len(started) > BATCH / 4, "most lines work"
    assert [line.text for line in started if decide(line.text) == "allow"] == []
    unseen = [line for line, one in results if not one.denied and line.kind == "mention"]
    blocked = [line.text for line in unseen if decide(line.text) != "allow"]
    assert len(blocked) <= MOST_BLOCKED * len(unseen), blocked
    broken = [line.text for line, one in results if not one.parses]
    allow = (rule("*", "allow"), rule("*", "ask"))
    assert len([text for text in broken if decide(text, *allow) == "allow"]) <= MOST_COVERED


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("git push", "deny"), ("git -C sub push -f", "deny"), ("git -c a.b=c push", "deny"),
        ("git $what", "ask"), ("git pu*", "ask"), ("git {push,pull}", "ask"), ("$tool push", "ask"),
        ('git commit -m "$message"', "allow"), ("git add *.py", "allow"), ("ls $folder", "allow"),
    ],
)  # fmt: skip
def test_words_that_are_not_known_are_asked_about_where_they_matter(
    text: str, decision: str
) -> None:
    assert decide(text, rule("git push*")) == decision


@pytest.mark.parametrize(("mode", "unseen"), [("ask", "ask"), ("auto", "allow"), ("never", "deny")])
def test_what_cannot_be_seen_is_asked_about(mode: Policy, unseen: str) -> None:
    call = ProposedCall("bash", {"command": "$tool x"}, traits_of(bash))
    allow = rule("*", "allow")
    for rules in ((REMOVE,), (allow, REMOVE), (rule("rm *", "ask"), allow)):
        found = evaluate_policy(call, settings(*rules, mode=mode))
        assert found.decision == unseen
        assert found.decision == "allow" or "may run unseen" in found.why
    assert evaluate_policy(call, settings(allow)).decision == "allow", "no rule forbids anything"


def test_an_approval_of_the_unseen_covers_no_command_that_is_seen() -> None:
    asking = settings(rule("rm *", "ask"))
    unseen = ProposedCall("bash", {"command": "$tool x"}, traits_of(bash))
    remembered = evaluate_policy(unseen, asking).remembered_approval
    assert evaluate_policy(unseen, asking, [remembered]).decision == "allow"
    seen = ProposedCall("bash", {"command": "rm x"}, traits_of(bash))
    assert evaluate_policy(seen, asking, [remembered]).decision == "ask"


def test_links_and_scripts_of_the_workspace_are_looked_into(tmp_path: Path) -> None:
    for name, text in {
        "clean": "#!/bin/sh\nrm x\n",
        "lib.sh": "x=1\nrm $x\n",
        "ok.sh": "$tool x # rm y\n",
        "rm.py": "#!/usr/bin/python3\n'''\nrm x\n'''\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "foo").symlink_to("/bin/rm")
    (tmp_path / "bar").symlink_to("clean")
    (tmp_path / "out.sh").symlink_to(tmp_path.parent / "elsewhere.sh")
    (tmp_path.parent / "elsewhere.sh").write_text("rm x")
    denied = ["./foo x", "./clean", "sh clean", "bash ./bar", ". ./lib.sh", "cd . && source lib.sh"]
    allowed = ["./ok.sh", "sh ok.sh", "./rm.py", "./no x", "sh no", "cat clean", "sh out.sh"]
    found = {text: decide(text, workspace=tmp_path) for text in (*denied, *allowed)}
    assert found == {**dict.fromkeys(denied, "deny"), **dict.fromkeys(allowed, "allow")}
