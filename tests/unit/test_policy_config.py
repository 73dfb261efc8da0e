"""Where the policy's rules come from."""

from pathlib import Path

import pytest

from openmanus_graph import ConfigError, Context
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.interfaces.cli.skills import trust
from openmanus_graph.state.settings import Settings

RULE = '[[policy.rules]]\ntool = "bash"\n'


def resolved(**context: object) -> Settings:
    return resolve_settings(Context(model="openai:x", base_url="http://m.test", **context), "t")  # type: ignore[arg-type]  # any field


def write(text: str, path: str = "openmanus.toml") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def test_rules_of_all_places_count_the_most_important_first() -> None:
    write(RULE + 'decision = "deny"\nargs = { command = "git push*", restart = true }\n')
    write(RULE + 'decision = "ask"\n', "config/openmanus/config.toml")
    found = resolved(policy_rules=({"tool": "bash", "decision": "allow"},))
    assert [rule.decision for rule in found.rules] == ["allow", "deny", "ask"]
    assert found.rules[1].args == {"command": "git push*", "restart": "true"}
    assert "openmanus.toml" in str(found.rules[1])


@pytest.mark.parametrize(
    ("text", "mode"),
    [('policy = "never"', "never"), ('[policy]\nmode = "never"', "never"), ("", "ask")],
)
def test_the_mode_has_a_short_form(text: str, mode: str) -> None:
    write(text)
    assert resolved().policy == mode
    assert resolved(policy="auto").policy == "auto"


def test_a_folder_cannot_allow_what_the_person_did_not() -> None:
    write(
        '[policy]\nmode = "auto"\n' + RULE + 'decision = "allow"\n' + RULE + 'decision = "deny"\n'
    )
    found = resolved()
    assert (found.policy, [rule.decision for rule in found.rules]) == ("ask", ["deny"])
    assert "policy, policy.rules: not used until you trust this folder" in found.warnings[0]
    trust()
    found = resolved()
    assert (found.policy, [rule.decision for rule in found.rules]) == ("auto", ["allow", "deny"])


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ('tool = "bash"\ndecision = "maybe"', "policy.rules.0.decision"),
        ('tool = "bash"', "policy.rules.0.decision"),
        ('decision = "deny"', "policy.rules.0.tool"),
        ('tool = " "\ndecision = "deny"', "rule 1 names no tool"),
        ('tool = "bash"\ndecision = "deny"\ntols = 1', "policy.rules.0.tols"),
    ],
)
def test_a_wrong_rule_is_named(rule: str, named: str) -> None:
    write(f"[[policy.rules]]\n{rule}\n")
    with pytest.raises(ConfigError, match=named):
        resolved()


def test_an_unknown_key_of_the_policy_is_a_warning() -> None:
    write('[policy]\nmood = "ask"\n')
    assert "policy.mood is not known here" in resolved().warnings[0]
