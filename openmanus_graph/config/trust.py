"""Folders whose configuration may start commands or loosen safety.

A cloned repository must not be able to switch the sandbox off, or to send the person's key to
its own server. Such settings count only after the person trusted them, once per folder; when
they change, the person is asked again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from openmanus_graph.config.files import Layer
from openmanus_graph.config.sections import BrowserSection, LlmSection, PolicySection
from openmanus_graph.settings import MAX_COST_USD

TUNING_OPTIONS = frozenset({
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop",
    "frequency_penalty", "presence_penalty", "reasoning", "reasoning_effort", "verbosity",
})  # fmt: skip
"""Anything else (`base_url`, `default_headers` ...) may send the key elsewhere."""

_HARMLESS_BROWSER = ("headless", "max_content_length", "observation_tokens")


def config_home() -> Path:
    """Return the person's own configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "openmanus"


def risky_settings(layer: Layer) -> dict[str, Any]:
    """Return what in a file starts commands, loosens safety or sends data elsewhere."""
    config, sandbox = layer.config, layer.config.sandbox
    risky = {
        "policy": config.policy.mode if config.policy.mode == "auto" else None,
        "policy.rules": [rule for rule in config.policy.rules if rule["decision"] == "allow"],
        "sandbox.mode": sandbox.mode if sandbox.mode == "none" else None,
        "sandbox.network": sandbox.network,
        "sandbox.image": sandbox.image,
        "allow_hosts": config.allow_hosts,
        "max_cost_usd": config.max_cost_usd if _costs_more(config.max_cost_usd) else None,
        "prices": config.prices,
        "workspace": config.workspace if config.workspace and _leaves(config.workspace) else None,
        "base_url": config.base_url,
        "llm.base_url": layer.llm.base_url,
        "llm.vision.base_url": layer.vision.base_url if layer.vision else None,
        "model_options": config.model_options if _reroutes(config.model_options) else None,
        "browser": _risky_browser(config.browser),
        "search.searxng_url": config.search.searxng_url,
        "search.urls": config.search.urls,
        "web.allowed_domains": config.web.allowed_domains,
        "mcp": {
            name: section.model_dump(exclude_defaults=True)
            for name, section in config.mcp.servers.items()
        },
    }
    return {key: value for key, value in risky.items() if value}


def is_trusted(folder: Path, layer: Layer) -> bool:
    """Say whether the person trusted these very settings of this folder."""
    known = _read().get(str(folder), {})
    return known.get(_name(folder, layer)) == _digest(risky_settings(layer))


def trust(folder: Path, layer: Layer) -> None:
    """Remember that the person trusts the risky settings of this folder."""
    known = _read()
    known.setdefault(str(folder), {})[_name(folder, layer)] = _digest(risky_settings(layer))
    config_home().mkdir(parents=True, exist_ok=True)
    temporary = _store().with_suffix(".part")
    temporary.write_text(json.dumps(known, indent=2), encoding="utf-8")
    temporary.replace(_store())


def without_risks(layer: Layer) -> Layer:
    """Return the file as if its risky settings were not in it."""
    sandbox = layer.config.sandbox.model_copy(
        update={"mode": None, "network": None, "image": None}
        if layer.config.sandbox.mode == "none"
        else {"network": None, "image": None}
    )
    config = layer.config
    config = config.model_copy(
        update={
            "policy": _without_leave(config.policy),
            "workspace": None,
            "sandbox": sandbox,
            "model_options": (None if _reroutes(config.model_options) else config.model_options),
            "max_cost_usd": None if _costs_more(config.max_cost_usd) else config.max_cost_usd,
            "search": config.search.model_copy(update={"searxng_url": None, "urls": None}),
            "browser": config.browser.model_copy(
                update=dict.fromkeys(_risky_browser(config.browser))
            ),
            "web": config.web.model_copy(update={"allowed_domains": None}),
            "mcp": config.mcp.model_copy(update={"servers": {}}),
            **dict.fromkeys(("allow_hosts", "base_url", "prices")),
        }
    )
    llm = _without_address(layer.llm, named=layer.config.base_url)
    vision = _without_address(layer.vision) if layer.vision else None
    return Layer(layer.path, config, llm, vision, layer.unknown)


def _without_address(section: LlmSection, *, named: str | None = None) -> LlmSection:
    """Drop a server's address, and with it the key, which is for that server only."""
    if not (section.base_url or named):
        return section
    return section.model_copy(update={"base_url": None, "api_key": None})


def _without_leave(section: PolicySection) -> PolicySection:
    """Return a policy that allows nothing more than there is without it."""
    return section.model_copy(
        update={
            "mode": None if section.mode == "auto" else section.mode,
            "rules": tuple(rule for rule in section.rules if rule["decision"] != "allow"),
        }
    )


def _reroutes(options: Mapping[str, Any] | None) -> bool:
    """Say whether the client's options could do more than tune the model's replies."""
    return bool(set(options or ()) - TUNING_OPTIONS)


def _risky_browser(section: BrowserSection) -> dict[str, Any]:
    """Return what starts programs, connects elsewhere or takes protection off a browser."""
    given = section.model_dump(exclude_none=True, exclude=set(_HARMLESS_BROWSER))
    return {key: value for key, value in given.items() if value not in (False, (), "")}


def _costs_more(max_cost_usd: float | None) -> bool:
    return max_cost_usd is not None and max_cost_usd > MAX_COST_USD


def _leaves(workspace: str) -> bool:
    return Path(workspace).is_absolute() or ".." in Path(workspace).parts


def _store() -> Path:
    return config_home() / "trusted.json"


def _read() -> dict[str, dict[str, str]]:
    try:
        known = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # nobody is trusted by a file that cannot be read
    return cast("dict[str, dict[str, str]]", known) if isinstance(known, dict) else {}


def _name(folder: Path, layer: Layer) -> str:
    """Name a file within its folder: there may be two `mcp.json`."""
    return layer.path.absolute().relative_to(folder).as_posix()


def _digest(settings: dict[str, Any]) -> str:
    plain = json.dumps(settings, sort_keys=True, default=_plain)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(value: object) -> str:
    """Write out what JSON cannot: a server's variable that changes needs trust again."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
