"""The policy: its mode, and the rules of all places."""

from collections.abc import Iterable, Iterator

from openmanus_graph.config.files import Layer
from openmanus_graph.config.model import first
from openmanus_graph.errors import ConfigError
from openmanus_graph.policy import written
from openmanus_graph.settings import Rule
from openmanus_graph.state.context import Context, Policy, PolicyRule


def policy_mode(context: Context, layers: list[Layer]) -> Policy:
    """Return the mode of the first place that has one."""
    modes = (layer.config.policy.mode for layer in layers)
    return context.policy or first(modes) or "ask"


def policy_rules(context: Context, layers: list[Layer]) -> tuple[Rule, ...]:
    """Return the rules of all places, the most important first. ConfigError names a wrong one."""
    found = [*_rules(context.policy_rules or (), "Context.policy_rules")]
    for layer in layers:
        found += _rules(layer.config.policy.rules, str(layer.path))
    return tuple(found)


def _rules(given: Iterable[PolicyRule], source: str) -> Iterator[Rule]:
    for number, rule in enumerate(given, 1):
        if not rule["tool"].strip():
            raise ConfigError(f"{source}: rule {number} names no tool; write * for all of them.")
        args = {
            name: pattern if isinstance(pattern, str) else written(pattern)
            for name, pattern in rule.get("args", {}).items()
        }
        yield Rule(rule["tool"].strip(), args, rule["decision"], f"rule {number} of {source}")
