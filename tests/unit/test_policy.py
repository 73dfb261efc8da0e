"""The policy's rules: decisions that touch nothing but links."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.safety.policy import (
    ProposedCall,
    evaluate_policy,
    unknown_tools,
    wrong_arguments,
)
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Policy, RuleDecision
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.setting_declaration import Rule
from openmanus_graph.state.settings import SandboxSettings, Settings
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools import default_tools

WORK = Path("/w")
TOOLS = {tool.name: tool for tool in default_tools()}
ASKED = Traits(effect="external", approval=True)


def rule(tool: str, decision: RuleDecision, **args: str) -> Rule:
    return Rule(tool, args, decision, "rule 1 of a file")


def settings(*rules: Rule, mode: Policy = "ask", workspace: Path = WORK) -> Settings:
    return Settings(
        main=ModelSettings("openai:x"), vision=None, workspace=workspace, home=WORK,
        database=DatabaseUrl.in_folder(WORK),
        private=WORK / "private", protected=(), sandbox=SandboxSettings(), policy=mode, rules=rules,
    )  # fmt: skip


def decide(
    tool: str,
    args: dict[str, Any],
    *rules: Rule,
    mode: Policy = "ask",
    workspace: Path = WORK,
) -> str:
    traits = traits_of(TOOLS[tool]) if tool in TOOLS else ASKED
    found = settings(*rules, mode=mode, workspace=workspace)
    return evaluate_policy(ProposedCall(tool, args, traits), found).decision


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


REMOVE = rule("bash", "deny", command="rm *")
# A real bash runs each of these, so that the table cannot claim what is not so.
REMOVING = [
    "rm x", "/bin/rm x", "r\\m x", "'rm' x", "r\"m\" x", "$'rm' x", "$'\\x72\\155' x", '$"rm" x',
    "r\\\nm x", ">/dev/null rm x", "rm >/dev/null x", "2>&1 A=1 rm x", "rm <<<a x",
    "rm <<E x\n\nE\n",
    "timeout 5 rm x", "timeout -k 1 --signal KILL 5 rm x", "nice -n 10 rm x", "nice -10 rm x",
    "nohup rm x", "stdbuf -o L rm x", "setsid -w rm x", "env -u A rm x", "env -i A=1 /bin/rm x",
    "env -S 'rm x'", "command -p rm x", "exec -a n rm x", "time -p rm x", "! ! rm x",
    "builtin eval rm x", "eval 'r'm x", "eval eval eval rm x", "nohup nice env A=1 rm x",
    "sh -c 'rm x'", "bash -o errexit -ec 'rm x'", "bash -c -- 'rm x'",
    "bash -c \"bash -c 'bash -c \\\"rm x\\\"'\"", "timeout 5 bash -c 'nice rm x'",
    "bash <<E\nrm x\nE\n", "bash -s <<-'E'\n\trm x\n\tE\n", "cat <<E |\nrm x\nE\nsh",
    "bash <<< 'rm x'", "sh -c sh <<< 'rm x'", "printf 'true\\nrm x\\n' | env sh",
    "echo 'rm x' > s; sh s", "cat > s <<'E'\nrm x\nE\n. ./s", "bash <(echo rm x)",
    "echo \"$(rm x)\"", "echo `rm x`", "echo `echo \\`rm x\\``", "cat <(rm x)", "a=($(rm x))",
    "echo ${a:-$(rm x)}", "echo $((`rm x`1))", "export a=$(rm x)", "[[ -z $(rm x) ]]",
    "a[$(rm x;echo 1)]=1", "cat <<E\n$(rm x)\nE\n", "cat <<E\n`rm x`\nE\n", "cat <<<$(rm x)",
    "true |& rm x", "true & rm x", "{ { (rm x) } }", "if false; then :; elif rm x; then :; fi",
    "for i in x; do rm $i; done", "until rm x; do break; done", "case a in b);; *) rm x; esac",
    "f() { rm x; }; f", "function f (rm x); f", "coproc C { rm x; }; wait", "time { rm x; }",
    "echo x | xargs -n 1 rm", "echo x | xargs -I % -d '\n' rm %", "echo x | xargs env -u A rm",
    "echo 'rm x' | xargs -I{} sh -c '{}'", "find . -name x -exec rm {} +",
    "find . -name x -exec true \\; -execdir rm {} ';'",
    "find . -name x -exec sh -c 'rm \"$1\"' _ {} \\;", "trap 'rm x' EXIT; exit", "$undefined rm x",
    "shopt -s expand_aliases; alias r=rm\nr x", "{rm,-f,x}", "echo \\ #; rm x", "echo ''#; rm x",
    "# a \\\nrm x", "cat <<'A B'\nq\nA B\nrm x", "cat <<A <<B\na\nA\nb\nB\nrm x", "$\nrm x",
    "flock l -c 'rm x'", "script -qc 'rm x' /dev/null", "echo a && git log 'x\n' ; rm x",
]  # fmt: skip


@pytest.mark.parametrize("command", REMOVING)
def test_a_denied_command_is_seen_wherever_bash_would_run_it(command: str, tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
        check=False,
    )  # fmt: skip
    assert not (tmp_path / "x").exists()
    assert decide("bash", {"command": command}, REMOVE) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "sudo -u root rm x", "sudo -uroot A=1 rm x", "sudo --user root -- rm x", "sudo -Z q rm x",
        "sudo bash <<E\nrm x\nE\n", "sudo $options rm x", "doas -u root rm x", "su - a -c 'rm x'",
        "su --command='rm x'", "runuser -u a -- rm x", "chroot --userspec 0:0 /r rm x",
        "watch -n 1 'rm x'", "busybox rm x", "ionice -c 3 rm x", "ssh -p 22 h 'cd /; rm x'",
        "ssh h bash -s <<E\nrm x\nE\n", "parallel -j 4 rm ::: x", "zsh -lc 'rm x'",
        "sudo -u root rm", "timeout 5 rm", "nice -n 10 rm", "env -u A rm", "xargs -n 1 rm",
        ">/dev/null rm", "find . -exec rm {} +", "rm x 'open", "rm x )", "echo \"$(rm x",
        "if true; then rm x", "sudo " * 3000 + "rm x", "r\0m x", "\ud800; rm x",
    ],
)  # fmt: skip
def test_a_denied_command_is_seen_behind_programs_and_in_broken_texts(command: str) -> None:
    assert decide("bash", {"command": command}, REMOVE) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "echo 'rm x'", "git commit -m 'rm x'", "sudo -n grep rm x", "timeout 5 ls rm x",
        "xargs -n 1 echo rm x", "find . -exec ls rm {} +", "cat > a.md <<'E'\nrm x\nE\n",
        "# rm x", "ls # rm x", "command -v rm", "docker run --rm x", "bash -c 'echo rm x'",
        "for f in rm x; do echo $f; done", "x='rm x'", "a=(rm x)", "bash build.sh rm x",
        "cat > a.py <<'E'\n" + "# it's no shell: $( `\nrm x\n" * 9000 + "E\npython a.py",
    ],
)  # fmt: skip
def test_a_name_that_is_no_command_is_not_denied(command: str) -> None:
    assert decide("bash", {"command": command}, REMOVE) == "allow"


@pytest.mark.parametrize("text", ["a|", ")", "<<<<", "$(", "a;", "'", "cat <<E\n", "{ ", "<<E\n"])
def test_a_text_of_a_megabyte_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """The parser alone takes hours and all memory for the first of these."""
    command = text * (1_000_000 // len(text))
    allow = rule("bash", "allow", command="a*")
    assert decide("bash", {"command": f"{command}\nrm x"}, REMOVE) == "deny"
    assert decide("bash", {"command": command}, REMOVE, allow, rule("bash", "ask")) == "ask"


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


GIT = (
    rule("bash", "allow", command="git *"),
    rule("bash", "allow", command="head*"),
    rule("bash", "ask"),
)


@pytest.mark.parametrize(
    "command",
    [
        "git status", "git status && git diff | head", "git log | head -n 3",
        "(git log; git diff) &",
        "! git diff --quiet", "git log 2>&1", "git log &>/dev/null 2>/dev/null", "git log # c",
        "git commit -m 'a b; $(c)' -c HEAD", "git commit -m \"a b\"", "git add *.py",
        "git diff \\\n  --stat", "git -C sub stash -u", "git show @{u} HEAD~1:a",
        "timeout 5 nice -n 3 git status", "# note\ngit status\n\ngit diff\n",
    ],
)  # fmt: skip
def test_an_allowed_command_is_allowed_in_plain_company(command: str) -> None:
    assert decide("bash", {"command": command}, *GIT) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "LD_PRELOAD=./e.so git log", "GIT_SSH_COMMAND=./e git fetch", "PATH=.", "PATH=.; git log",
        "export PATH=.; git log", "sudo git log", "env A=1 git log", "env git log", "exec git log",
        "xargs git add", "git log > file", "git log >> f", "git log 2> f", "git log >& f",
        "git log < f", "> f", "git log <<E\nE\n", "git log <<< a", "git log | head > f",
        "git -c core.pager=./e log", "git -C x -c a=b log", "git --config-env=a=b log",
        "git --exec-path=. log", "git fetch --upload-pack=./e", "git fetch --upload-pa ./e",
        "git push --receive-pack=./e", "git clone -u ./e x", "git clone -c a=b x",
        "git rebase -ix ./e", "git grep -O./e a", "git bisect run ./e", "git config a.b ./e",
        "git submodule foreach ./e", "git fetch *", "git log $(git log)", "git log <(git log)",
        "git log $X", 'git log "$X"', "git $X", "$X git log", "git {-c,a=b} log", "git log; x",
        "git log | sh", "git log | ls", "bash -c 'git log'", "eval git log", "alias git=x",
        "git() { git log; }; git log", "for i in 1; do git log; done", "git log \\ #; x",
        "./git log", "'git log'", "./timeout 5 git log", "timeout -q 5 git log", "git log '",
        ". git x",
    ],
)  # fmt: skip
def test_an_allowed_command_allows_nothing_that_changes_it(command: str) -> None:
    assert decide("bash", {"command": command}, *GIT) == "ask"


@pytest.mark.parametrize(
    ("pattern", "command", "decision"),
    [
        ("sudo git *", "sudo git log", "allow"),
        ("sudo *", "sudo git log", "allow"),
        ("sudo *", "sudo git -c a=b log", "ask"),
        ("sudo *", "sudo sh -c 'git log'", "ask"),
        ("git -c core.pager=cat *", "git -c core.pager=cat log", "allow"),
        ("git -c *", "git -c core.pager=./e log", "ask"),
        ("find *", "find . -name '*.py'", "allow"),
        ("find *", "find . -exec rm {} +", "ask"),
        ("find . -exec wc *", "find . -exec wc {} +", "allow"),
        ("bash *", "bash build.sh", "allow"),
        ("bash *", "bash -c 'x'", "ask"),
        ("bash *", "bash", "ask"),
        ("tar *", "tar -xf a", "allow"),
        ("tar *", "tar -xf a --checkpoint-action=exec=x", "ask"),
        ("tar *", "tar xIf ./e a", "ask"),
        ("tar *", "tar -cf a *", "ask"),
        ("rsync *", "rsync -aze ./e a b", "ask"),
        ("*", "A=1 x > f; for i in a; do git -c a=b x; done", "allow"),
        ("*", "$x y", "ask"),
        ("*", "x | sh", "ask"),
        ("*", "x 'open", "ask"),
        ("x*", "", "allow"),
    ],
)
def test_an_allowing_rule_must_name_what_a_program_is_to_run(
    pattern: str, command: str, decision: str
) -> None:
    rules = (rule("bash", "allow", command=pattern), rule("bash", "ask"))
    assert decide("bash", {"command": command}, *rules) == decision


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


@pytest.mark.parametrize("pattern", ["private/*", "{work}/private/*", "shortcut", "{work}/loop"])
def test_a_link_passes_no_rule_about_paths(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private/key").touch()
    (tmp_path / "shortcut").symlink_to("private/key")
    (tmp_path / "folder").symlink_to("private")
    (tmp_path / "loop").symlink_to("loop")
    work = tmp_path / "work"
    work.symlink_to(tmp_path)
    deny = rule("read_file", "deny", path=pattern.format(work=tmp_path))
    denied = {
        path
        for path in ("private/key", "shortcut", "folder/key", "loop", "other", "nul\0", "a" * 9999)
        if decide("read_file", {"path": path}, deny, workspace=work) == "deny"
    }
    expected = {"private/key", "shortcut", "folder/key"} if "private" in pattern else set[str]()
    expected |= {"shortcut"} if pattern == "shortcut" else {"loop"} if "loop" in pattern else set()
    assert denied == expected


def test_a_link_out_of_an_allowed_folder_is_not_allowed_by_it(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/key").symlink_to("../key")
    rules = (rule("read_file", "allow", path="notes/*"), rule("read_file", "ask"))
    assert decide("read_file", {"path": "notes/a"}, *rules, workspace=tmp_path) == "allow"
    assert decide("read_file", {"path": "notes/key"}, *rules, workspace=tmp_path) == "ask"


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
    call = ProposedCall(
        "fetch_page", {"url": "https://x.test"}, Traits(), unverified="It is strange."
    )
    found = evaluate_policy(call, settings(rule("*", "allow")), remembered_approvals=())
    assert (found.decision, found.why, found.remembered_approval) == ("ask", "It is strange.", "")


def test_an_approval_for_the_run_allows_calls_of_its_kind_and_no_denied_ones() -> None:
    call = ProposedCall("bash", {"command": "git push"}, traits_of(TOOLS["bash"]))
    asking = settings(rule("bash", "ask", command="git push*"), rule("bash", "ask"))
    remembered_approval = evaluate_policy(call, asking).remembered_approval
    assert evaluate_policy(call, asking, [remembered_approval]).decision == "allow"
    other = ProposedCall("bash", {"command": "ls"}, call.traits)
    assert evaluate_policy(other, asking, [remembered_approval]).decision == "ask"
    assert (
        evaluate_policy(call, settings(*asking.rules, PUSH), [remembered_approval]).decision
        == "deny"
    )


def test_rules_that_can_never_match_are_named() -> None:
    schemas = Toolset(TOOLS, None).schemas
    wrong = wrong_arguments([rule("bash", "deny", cmd="rm*")], schemas)
    assert "names cmd" in wrong
    assert "command" in wrong
    assert wrong_arguments([PUSH, rule("nope", "deny", cmd="x")], schemas) == ""
    warnings = list(unknown_tools([rule("bsah", "deny"), rule("mcp_*", "deny")], list(TOOLS)))
    assert len(warnings) == 1
    assert "Did you mean bash?" in warnings[0]
