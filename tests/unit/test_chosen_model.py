"""The model and the key that a person chose, and where they are kept."""

import stat
import tomllib
from pathlib import Path

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.models.endpoint import api_key
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.config import resolve_settings
from openmanus_graph.config.chosen_model import KEYS_FILE, store_model, stored_key, with_top_keys
from openmanus_graph.config.trust import config_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.model_setup import ModelChoice, set_up_model
from openmanus_graph.state.context import Context
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_MODEL", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def test_a_stored_model_is_the_default_and_its_key_is_read_by_nobody_else() -> None:
    store_model("anthropic:claude-x", None, KEY)
    assert stat.S_IMODE((config_home() / KEYS_FILE).stat().st_mode) == 0o600
    main = resolve_settings(Context(), "t").main
    assert main.model == "anthropic:claude-x"
    assert api_key(parse_spec("anthropic:claude-x"), main) == KEY
    assert KEY not in repr(main)
    assert KEY not in (config_home() / "config.toml").read_text()


def test_the_environment_goes_before_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    store_model("anthropic:claude-x", None, KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
    main = resolve_settings(Context(), "t").main
    assert api_key(parse_spec("anthropic:claude-x"), main) == "from-the-environment"


def test_a_key_goes_to_the_server_that_it_was_given_for_and_to_no_other() -> None:
    store_model("openai:m", "http://127.0.0.1:9/v1", KEY)
    assert stored_key("openai", None) is None
    other = resolve_settings(Context(base_url="http://127.0.0.1:8/v1"), "t").main
    assert api_key(parse_spec("openai:m"), other) == "none"
    own = resolve_settings(Context(), "t").main
    assert (own.base_url, api_key(parse_spec("openai:m"), own)) == ("http://127.0.0.1:9/v1", KEY)


def test_a_second_key_leaves_the_first_and_an_unreadable_file_is_written_anew() -> None:
    store_model("openai:m", None, KEY)
    store_model("groq:m", None, "gsk")
    first = stored_key("openai", None)
    assert first is not None
    assert first.get_secret_value() == KEY
    (config_home() / KEYS_FILE).write_text("[1")
    assert stored_key("openai", None) is None
    store_model("openai:m", None, KEY)
    assert stored_key("openai", None) == SecretStr(KEY)


def test_the_rest_of_the_configuration_stays_as_it_is() -> None:
    text = '# mine\nmodel = "openai:old" # why\nmax_steps = 3\n\n[llm]\nmodel = "inner"\n'
    changed = with_top_keys(text, {"model": 'a:"b"', "base_url": None})
    assert tomllib.loads(changed) == {"model": 'a:"b"', "max_steps": 3, "llm": {"model": "inner"}}
    assert "# mine\n" in changed
    assert with_top_keys(changed, {"model": 'a:"b"', "base_url": None}) == changed


@pytest.mark.parametrize("text", ["model = [", 'base_url = """\nhttp://x"""\n'])
def test_a_configuration_that_cannot_be_changed_safely_is_left_alone(text: str) -> None:
    config_home().mkdir(parents=True)
    (config_home() / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match="cannot be changed"):
        store_model("openai:m", "http://127.0.0.1:9/v1", None)
    assert (config_home() / "config.toml").read_text() == text


async def test_a_model_is_kept_only_if_it_answers() -> None:
    with OpenAIServer(
        [
            Reply(status=401, error={"message": f"Incorrect API key provided: {KEY}"}),
            Reply(text="ready"),
        ]
    ) as server:
        choice = ModelChoice("openai:m", server.base_url, SecretStr(KEY))
        with pytest.raises(ConfigError) as refused:
            await set_up_model(choice)
        assert KEY not in str(refused.value)
        assert not config_home().exists()
        await set_up_model(choice)
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    assert stored_key("openai", server.base_url) == SecretStr(KEY)
