"""`openmanus` sends its traces where the standard variables say, and loses no run over them."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_cli_resume import SLOW, begin_slow_call, release
from tests.support.cli import KEY, Cli, until
from tests.support.local_http import LocalServer, SilentHandler
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.otlp import Collector, collecting
from tests.support.serving import Served, new_page

pytestmark = pytest.mark.slow


@pytest.fixture
def collector(cli: Cli) -> Iterator[Collector]:
    with collecting() as found:
        cli.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = found.url
        yield found


def test_a_killed_run_loses_only_what_was_not_sent_and_is_resumed_in_its_conversation(
    cli: Cli, model: OpenAIServer, collector: Collector
) -> None:
    cli.env["OTEL_BSP_SCHEDULE_DELAY"] = "10"
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    running = begin_slow_call(cli)
    until(lambda: bool(collector.named("chat")))
    running.signal(signal.SIGKILL)
    running.finish()
    assert [one.name for one in collector.spans] == ["chat test-model"]
    release(cli)
    done = cli.run("resume", "t", "--json")
    assert done.code in (0, 4)
    runs = collector.named("invoke_agent")
    assert len(runs) == 1
    assert {one.attributes["gen_ai.conversation.id"] for one in collector.spans} == {"t"}
    assert collector.spans[0].trace != runs[0].trace
    chat = collector.spans[0].attributes
    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["server.address"] == "127.0.0.1"
    assert chat["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert KEY.encode() not in b"".join(collector.raw)


class _Broken(SilentHandler):
    def do_POST(self) -> None:
        """Refuse a batch."""
        self.send_error(400)


def test_a_collector_that_refuses_changes_nothing(cli: Cli, model: OpenAIServer) -> None:
    server = LocalServer(_Broken)
    server.begin()
    model.add(Reply("Done."))
    done = cli.run("run", "it", env={"OTEL_EXPORTER_OTLP_ENDPOINT": server.url})
    server.end()
    assert (done.code, done.stderr.count("opentelemetry")) == (0, 0)
    assert "Done." in done.stdout


async def test_the_server_sends_its_runs(
    model: OpenAIServer, collector: Collector, tmp_path: Path
) -> None:
    env = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENMANUS_MODEL": "openai:m",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }
    model.add(Reply(calls=(Call("bash", {"command": "echo hi"}),)), Reply("Done."))
    with Served(tmp_path / "served", env) as served:
        async with new_page(served) as page:
            await page.ask(agent="manus", message="Say hi.")
            assert (await page.final())["status"] == "finished"
            thread = page.thread
    run, tool = collector.one("invoke_agent manus"), collector.one("execute_tool bash")
    assert run.attributes["gen_ai.conversation.id"] == thread
    assert tool.parent == run.id
    assert [one.parent for one in collector.named("chat")] == [run.id, run.id]
