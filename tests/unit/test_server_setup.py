"""What the form for a model says where the model works, and yet another one is used."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.setup import ModelForm, choose_model
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

KEY = "sk-test-0123456789abcdef"


async def test_what_comes_before_a_model_that_was_kept_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    with OpenAIServer([Reply(text="ready")] * 3) as server:
        form = ModelForm(model="openai:m", base_url=server.base_url, key=SecretStr(KEY))
        assert KEY not in repr(form)
        await choose_model(form)
        monkeypatch.setenv("OPENMANUS_MODEL", "openai:other")
        with pytest.raises(ConfigError, match="openai:other has priority: OPENMANUS_MODEL"):
            await choose_model(form)
        monkeypatch.delenv("OPENMANUS_MODEL")
        monkeypatch.setenv("OPENAI_API_KEY", "another-key-of-mine")
        with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
            await choose_model(form)
