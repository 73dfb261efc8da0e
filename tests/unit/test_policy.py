"""The policy's rules: pure decisions."""

from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.policy import Proposal, judge, unknown_tools, wrong_arguments
from openmanus_graph.settings import ModelSettings, Rule, SandboxSettings, Settings
from openmanus_graph.state.context import Policy, RuleDecision
from openmanus_graph.tools import default_tools
from openmanus_graph.tools.declaration import Traits, traits_of
from openmanus_graph.tools.toolset import Toolset

WORK = Path("/w")
TOOLS = {tool.name: tool for tool in default_tools()}
ASKED = Traits(effect="external", approval=True)


def rule(tool: str, decision: RuleDecision, **args: str) -> Rule:
    return Rule(tool, args, decision, "rule 1 of a file")


def settings(*rules: Rule, mode: Policy = "ask") -> Settings:
    return Settings(
        main=ModelSettings("openai:x"), vision=None, workspace=WORK, home=WORK, protected=(),
        sandbox=SandboxSettings(), policy=mode, rules=rules,
    )  # fmt: skip


def decide(
    tool: str,
    args: dict[str, Any],
    *rules: Rule,
    mode: Policy = "ask",
    granted: tuple[str, ...] = (),
) -> str:
    traits = traits_of(TOOLS[tool]) if tool in TOOLS else ASKED
    return judge(Proposal(tool, args, traits), settings(*rules, mode=mode)).decision


PUSH = rule("bash", "deny", command="git push*")


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git  push\t-f",
        "git \\\n  push",
        "'git' p\"us\"h",
        "cd repo && git push",
        "true;git push",
        "true\ngit push",
        "(git push)",
        "GIT_DIR=x sudo git push",
        "sudo -n git push",
        "/usr/bin/git push",
        "bash -c 'cd x; git push'",
        "echo $(git push)",
        "echo `git push`",
        "if true; then git push; fi",
        "cat <<E\nit's\nE\ngit push",
        "yes | xargs git push",
    ],
)
def test_a_command_is_found_however_it_is_written(command: str) -> None:
    assert decide("bash", {"command": command}, PUSH) == "deny"


@pytest.mark.parametrize(
    "command", ["git pull", "echo 'git push'", "ls git push", "", "a.git push"]
)
def test_other_commands_are_left_alone(command: str) -> None:
    assert decide("bash", {"command": command}, PUSH) == "allow"


READS = (rule("bash", "allow", command="git status*"), rule("bash", "ask"))


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("git status -s", "allow"),
        ("git  status; git status", "allow"),
        ("git status; rm -rf x", "ask"),
        ("git status && $(rm -rf x)", "ask"),
        ("git status `rm x`", "ask"),
        ("git status <(rm x)", "ask"),
        ("git status | sh", "ask"),
        ("git status 'x", "ask"),
        ("bash -c 'git status'", "ask"),
    ],
)
def test_an_allowed_command_allows_no_others_beside_it(command: str, decision: str) -> None:
    assert decide("bash", {"command": command}, *READS) == decision


@pytest.mark.parametrize(
    ("path", "denied"),
    [
        ("secrets/key", True),
        ("./secrets/key", True),
        ("notes/../secrets/key", True),
        ("/w/secrets/key", True),
        ("notes/secrets", False),
    ],
)
def test_a_path_is_known_by_any_spelling(path: str, denied: bool) -> None:
    args = {"command": "view", "path": path}
    found = decide("str_replace_editor", args, rule("str_replace_editor", "deny", path="secrets/*"))
    assert found == ("deny" if denied else "allow")


def test_a_path_out_of_an_allowed_folder_is_not_allowed_by_it() -> None:
    rules = (rule("read_file", "allow", path="notes/*"), rule("read_file", "ask"))
    assert decide("read_file", {"path": "notes/a"}, *rules) == "allow"
    assert decide("read_file", {"path": "notes/../key"}, *rules) == "ask"


def test_a_deny_counts_wherever_it_stands_and_else_the_first_that_matches() -> None:
    allow, ask, deny = (rule("pay", decision) for decision in ("allow", "ask", "deny"))
    assert decide("pay", {}) == "ask"
    assert decide("pay", {}, allow, ask) == "allow"
    assert decide("pay", {}, ask, allow) == "ask"
    assert decide("pay", {}, allow, ask, deny) == "deny"


@pytest.mark.parametrize(
    ("mode", "asked", "allowed", "denied"),
    [("ask", "ask", "allow", "deny"), ("auto", "allow", "allow", "deny"),
     ("never", "deny", "allow", "deny")],
)  # fmt: skip
def test_the_mode_is_what_becomes_of_calls_that_would_be_asked_about(
    mode: Policy, asked: str, allowed: str, denied: str
) -> None:
    ask, allow, deny = (rule("bash", decision) for decision in ("ask", "allow", "deny"))
    assert decide("bash", {"command": "ls"}, ask, mode=mode) == asked
    assert decide("pay", {}, mode=mode) == asked
    assert decide("bash", {"command": "ls"}, allow, mode=mode) == allowed
    assert decide("bash", {"command": "ls"}, deny, mode=mode) == denied


def test_patterns_of_names_and_of_values_that_are_no_text() -> None:
    deny = rule("github_*", "deny", force="true", count="3")
    assert decide("github_push", {"force": True, "count": 3}, deny) == "deny"
    assert decide("github_push", {"force": False, "count": 3}, deny) == "ask"
    assert decide("gitlab_push", {"force": True, "count": 3}, deny) == "ask"
    assert decide("github_push", {"count": 3}, deny) == "ask"


def test_a_strange_address_is_asked_about_whatever_is_allowed() -> None:
    call = Proposal("fetch_page", {"url": "https://x.test"}, Traits(), strange="It is strange.")
    found = judge(call, settings(rule("*", "allow")), granted=())
    assert (found.decision, found.why, found.grant) == ("ask", "It is strange.", "")


def test_an_approval_for_the_run_allows_calls_of_its_kind_and_no_denied_ones() -> None:
    call = Proposal("bash", {"command": "git push"}, traits_of(TOOLS["bash"]))
    asking = settings(rule("bash", "ask", command="git push*"), rule("bash", "ask"))
    grant = judge(call, asking).grant
    assert judge(call, asking, [grant]).decision == "allow"
    other = Proposal("bash", {"command": "ls"}, call.traits)
    assert judge(other, asking, [grant]).decision == "ask"
    assert judge(call, settings(*asking.rules, PUSH), [grant]).decision == "deny"


def test_rules_that_can_never_match_are_named() -> None:
    schemas = Toolset(TOOLS, None).schemas
    wrong = wrong_arguments([rule("bash", "deny", cmd="rm*")], schemas)
    assert "names cmd" in wrong
    assert "command" in wrong
    assert wrong_arguments([PUSH, rule("nope", "deny", cmd="x")], schemas) == ""
    warnings = list(unknown_tools([rule("bsah", "deny"), rule("mcp_*", "deny")], list(TOOLS)))
    assert len(warnings) == 1
    assert "Did you mean bash?" in warnings[0]
