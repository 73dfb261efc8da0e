"""Going on from a replay: what went outside before the first difference is not done again."""

import asyncio
from pathlib import Path

import pytest

from openmanus_graph.backends.persistence.bundles import save_bundle
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.cli.replay import replay
from openmanus_graph.interfaces.cli.run import run_task
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.interfaces.service.replay import record_of
from openmanus_graph.interfaces.service.threads import whole_thread
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sending import build_sending_graph, sent

RULES = '[[policy.rules]]\ntool = "send"\nargs = { number = 1 }\ndecision = "allow"\n'


@pytest.mark.parametrize("from_bundle", [False, True])
def test_a_call_before_the_different_one_is_answered_by_the_record(
    from_bundle: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the same reply; the policy then refuses the other one."""
    monkeypatch.setattr(catalog, "_registered", {"sending": build_sending_graph})
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "openmanus").mkdir(parents=True)
    (tmp_path / "config" / "openmanus" / "config.toml").write_text(RULES)
    both = Reply(calls=(Call("send", {"number": 1}), Call("send", {"number": 2})))
    sent.clear()
    with OpenAIServer([both, Reply("Both."), Reply("Only one.")], strict=True) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
        given = InputOptions(agent="sending", thread="t")
        options = RunOptions(model="openai:test-model", policy="auto")
        assert run_task("send both", given, options, OutputOptions(quiet=True)) == 0
        assert sent == [1, 2]
        source = "t"
        if from_bundle:
            source = str(tmp_path / "run.zip")
            save_bundle(asyncio.run(record_of(whole_thread("t"))), Path(source))
        code = replay(source=source, policy="never", continues=True)
        results = [one["content"] for one in model.requests[-1].messages if one["role"] == "tool"]
    assert code == 0
    assert sent == [1, 2], "neither is sent again"
    assert results[0] == "sent 1"
    assert "sent 2" not in results[1]
