"""What `openmanus init` stores: the model in the configuration, keys that only the person reads."""

import asyncio
import stat
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.models.spec import api_key, parse_spec
from openmanus_graph.config import model as model_settings
from openmanus_graph.config.homes import is_trusted_content, trust_content
from openmanus_graph.config.model import (
    store_key,
    store_model,
    stored_key,
    with_values,
)
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.model_setup import ModelChoice, set_up_model
from openmanus_graph.state.context import Context
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

KEY = "sk-stored-1"


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's folder, and a working folder without configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_MODEL", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "config" / "openmanus"


def key_of(model: str, **context: Any) -> str | None:
    settings = resolve_settings(Context(model=model, **context), "t").main
    return api_key(parse_spec(model), settings)


def test_a_stored_key_is_the_persons_and_used_by_runs(person: Path) -> None:
    store_key("deepseek", None, KEY)
    assert stat.S_IMODE((person / "credentials.json").stat().st_mode) == 0o600
    assert key_of("deepseek:deepseek-chat") == KEY
    assert KEY not in repr(resolve_settings(Context(model="deepseek:deepseek-chat"), "t"))


def test_the_environment_comes_before_a_stored_key(monkeypatch: pytest.MonkeyPatch) -> None:
    store_key("deepseek", None, KEY)
    store_key("openai", None, KEY)
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-environment")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert key_of("deepseek:deepseek-chat") == "sk-environment"
    assert key_of("openai:gpt-5-mini") == "sk-other"


def test_a_stored_key_goes_to_its_own_server_only() -> None:
    store_key("openai", None, KEY)
    assert key_of("openai:x") == KEY
    assert key_of("openai:x", base_url="http://127.0.0.1:9/v1") == "none"
    store_key("openai", "http://127.0.0.1:9/v1", KEY)
    assert key_of("openai:x", base_url="http://127.0.0.1:9/v1") == KEY
    assert stored_key("openai", None) == SecretStr(KEY), "each server has its own"


def test_a_files_address_is_that_of_its_own_models_server() -> None:
    address = "http://127.0.0.1:9"
    Path("c.toml").write_text(f'model = "anthropic:claude"\nbase_url = "{address}"\n')

    def used(model: str | None) -> str | None:
        return resolve_settings(Context(model=model, config="c.toml"), "t").main.base_url

    assert used(None) == address
    assert used("anthropic:other") == address
    assert used("google:gemini") is None


@pytest.mark.parametrize("content", ["", '{"openai": "text"}', '{"openai": {}}'])
def test_an_entry_without_a_key_is_replaced(person: Path, content: str) -> None:
    person.mkdir(parents=True)
    (person / "credentials.json").write_text(content)
    assert stored_key("openai", None) is None
    store_key("openai", None, KEY)
    found = stored_key("openai", None)
    assert found is not None
    assert found.get_secret_value() == KEY


def test_the_model_is_written_and_the_rest_is_left(person: Path) -> None:
    person.mkdir(parents=True)
    top = '# mine\nmodel = "openai:old"\nbase_url = "http://old"\nmax_steps = 7\n\n'
    (person / "config.toml").write_text(f'{top}[search]\nengine = "brave"\n')
    store_model("anthropic:new", None)
    text = (person / "config.toml").read_text()
    assert "# mine" in text
    assert tomllib.loads(text) == {
        "model": "anthropic:new", "max_steps": 7, "search": {"engine": "brave"},
    }  # fmt: skip
    assert resolve_settings(Context(), "t").main.model == "anthropic:new"


@pytest.mark.parametrize("text", ["not = = toml", 'max_steps = """\nmodel = 1\n"""\n'])
def test_a_file_that_is_not_understood_is_left_alone(person: Path, text: str) -> None:
    person.mkdir(parents=True)
    (person / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match="cannot be changed"):
        store_model("openai:x", None)
    assert (person / "config.toml").read_text() == text


@pytest.mark.parametrize("text", ['{"openai": {"key": "sk-1"},}', "[]", "no JSON"])
def test_keys_in_a_damaged_file_are_left_alone(person: Path, text: str) -> None:
    person.mkdir(parents=True)
    (person / "credentials.json").write_text(text)
    assert stored_key("openai", None) is None
    with pytest.raises(ConfigError, match="is damaged .* and was not changed. Fix it"):
        store_key("deepseek", None, KEY)
    assert (person / "credentials.json").read_text() == text
    store_trust = partial(trust_content, Path("project"), "mcp.json", "digest")
    (person / "trusted.json").write_text(text)
    assert not is_trusted_content(Path("project"), "mcp.json", "digest")
    with pytest.raises(ConfigError, match="is damaged"):
        store_trust()
    (person / "trusted.json").unlink()
    store_trust()
    assert is_trusted_content(Path("project"), "mcp.json", "digest")


def test_keys_that_are_stored_at_the_same_time_are_all_kept() -> None:
    names = [f"p{number}" for number in range(20)]
    with ThreadPoolExecutor(len(names)) as pool:
        for name in names:
            pool.submit(store_key, name, None, f"sk-{name}")
    assert [stored_key(name, None) for name in names] == [SecretStr(f"sk-{n}") for n in names]


def test_other_lines_of_the_configuration_stay_as_they_are() -> None:
    text = '# mine\nmodel = "openai:old" # why\nmax_steps = 3\n\n[llm]\nmodel = "inner"\n'
    changed = with_values(text, {"model": 'a:"b"', "base_url": None})
    assert tomllib.loads(changed) == {"model": 'a:"b"', "max_steps": 3, "llm": {"model": "inner"}}
    assert "# mine\n" in changed
    assert with_values(changed, {"model": 'a:"b"', "base_url": None}) == changed


async def test_a_model_is_kept_only_if_it_answers(person: Path) -> None:
    refused = Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}"})
    with OpenAIServer([refused, Reply(text="ok")]) as server:
        choice = ModelChoice("openai:m", server.base_url, SecretStr(KEY))
        with pytest.raises(ConfigError) as error:
            await set_up_model(choice)
        assert KEY not in str(error.value)
        assert not await asyncio.to_thread(person.exists)
        await set_up_model(choice)
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert stored_key("openai", server.base_url) == SecretStr(KEY)


class Keyring:
    """What the package `keyring` offers, and a backend that works or does not."""

    class errors:
        KeyringError = RuntimeError

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.works = True

    def set_password(self, service: str, name: str, key: str) -> None:
        if not self.works:
            raise RuntimeError("no backend")
        self.kept[service, name] = key

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))


def test_a_keyring_is_used_where_it_works(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = Keyring()
    monkeypatch.setitem(sys.modules, "keyring", cast("ModuleType", keyring))
    monkeypatch.setattr(model_settings, "find_spec", str)
    assert store_key("deepseek", None, KEY) == "the system's keyring"
    assert KEY not in (person / "credentials.json").read_text()
    assert key_of("deepseek:deepseek-chat") == KEY
    keyring.works = False
    assert "credentials.json" in store_key("deepseek", None, "sk-2")
    assert key_of("deepseek:deepseek-chat") == "sk-2"


@pytest.mark.parametrize(
    ("text", "window", "expected"),
    [
        ("", 4096, "\n\n[llm]\ncontext_window = 4096\n"),
        ('model = "a:b"\n', 4096, 'model = "a:b"\n\n[llm]\ncontext_window = 4096\n'),
        ("[llm]", None, "[llm]"),
        ("[llm] # mine\ncontext_window = 1\n", None, "[llm] # mine\n"),
        (
            "[llm]\n  context_window=1\n\n[x]\na = 1\n",
            2,
            "[llm]\ncontext_window = 2\n\n[x]\na = 1\n",
        ),
        ("[x]\ncontext_window = 1\n", None, "[x]\ncontext_window = 1\n"),
        (
            "[x]\ncontext_window = 1\n[llm]\nfallback = []\n[llm.roles]\n",
            3,
            "[x]\ncontext_window = 1\n[llm]\ncontext_window = 3\nfallback = []\n[llm.roles]\n",
        ),
    ],
)
def test_the_window_is_stored_and_the_rest_stays(
    text: str, window: int | None, expected: str
) -> None:
    assert with_values(text, {"context_window": window}, "llm") == expected


@pytest.mark.parametrize("text", ["llm.context_window = 1\n", "llm = {context_window = 1}\n", "="])
def test_a_window_is_not_stored_in_what_is_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        with_values(text, {"context_window": 2}, "llm")


def test_a_stored_window_holds_for_any_provider(person: Path) -> None:
    for spec in ("openai:local", "ollama:qwen3"):
        store_model(spec, "http://127.0.0.1:1/v1", 8192)
        assert resolve_settings(Context(), "t").main.context_window == 8192
    store_model("deepseek:deepseek-chat", None)
    assert resolve_settings(Context(), "t").main.context_window is None
