"""Channels of `openmanus serve` and of the command: conversations, files, buttons, own kinds."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.deliveries import Deliveries, Delivery
from openmanus_graph.config.files import config_home
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support import slack
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.servers import bring_money
from tests.support.serving import Served, eventually
from tests.support.telegram import TOKEN, Telegram
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow


@pytest.fixture
def telegram() -> Iterator[Telegram]:
    with Telegram() as server:
        yield server


@pytest.fixture
def slack_api() -> Iterator[slack.Slack]:
    with slack.Slack() as server:
        yield server


@pytest.fixture
def served(tmp_path: Path, zygote: Zygote, model: OpenAIServer) -> Served:
    env = {
        "OPENMANUS_MODEL": "openai:test-model", "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "k", "TELEGRAM_TOKEN": TOKEN,
    }  # fmt: skip
    return Served(tmp_path / "served", env, zygote=zygote)


def configure(text: str, folder: Path | None = None) -> None:
    place = folder or config_home()
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(f'sandbox = {{ mode = "none" }}\n[channels.chat]\n{text}')


def telegram_settings(telegram: Telegram) -> str:
    url = telegram.server.url
    return (
        f'kind = "telegram"\nurl = "{url}"\ntoken = "${{TELEGRAM_TOKEN}}"\n'
        'allow = ["7"]\ntrust = true\n'
    )


def deliveries(served: Served) -> list[Delivery]:
    table = Deliveries(open_database(DatabaseUrl.in_folder(served.home)))
    return table.history("channel/chat", 20)[::-1]


async def test_a_chat_is_one_thread_with_files_both_ways(
    served: Served, model: OpenAIServer, telegram: Telegram
) -> None:
    configure(telegram_settings(telegram))
    telegram.files["f1"] = b"mugs: 5\n"
    made = Call("str_replace_editor", {"command": "create", "path": "report.md", "file_text": "5"})
    model.add(Reply("Hello Anna."), Reply(calls=(made,)), Reply("See the report."))
    with served:
        telegram.say("Hello, I am Anna.", chat=7)
        telegram.say("A secret of a stranger.", sender=8, chat=8)
        await eventually(lambda: "Hello Anna." in telegram.texts)
        document = {"file_id": "f1", "file_name": "stock.csv", "mime_type": "text/csv"}
        telegram.say("", caption="Make a report of this.", document=document)
        await eventually(lambda: "sendDocument" in [one["method"] for one in telegram.sent])
        one, two = deliveries(served)
    assert one.thread == two.thread
    assert "Hello, I am Anna." in str(model.requests[-1].messages)
    assert "stock.csv" in str(model.requests[-1].messages)
    assert telegram.texts[:2] == ["Hello Anna.", "See the report."]
    assert (telegram.sent[2]["name"], telegram.sent[2]["document"]) == ("report.md", b"5")
    assert {str(one["chat_id"]) for one in telegram.sent} == {"7", "b'7'"}
    assert {"method": "sendChatAction", "chat_id": 7, "action": "typing"} in telegram.actions
    assert "secret of a stranger" not in served.log + str(model.requests)
    assert TOKEN not in served.log


async def test_slack_retries_and_a_button_continues_the_run(
    served: Served, model: OpenAIServer, slack_api: slack.Slack
) -> None:
    configure(
        f'kind = "slack"\nurl = "{slack_api.server.url}/api"\ntoken = "{slack.TOKEN}"\n'
        f'secret = "{slack.SECRET}"\nallow = ["U7"]\ntrust = true\n'
    )
    cli = Cli(served.folder / "cli", zygote=served.zygote)
    bring_money(cli)
    served.env = {**served.env, "PYTHONPATH": cli.env["PYTHONPATH"]}
    model.add(Reply(calls=(Call("send_money", {"amount": 5}),)), Reply("Paid."))

    def post(body: bytes, **more: str) -> httpx.Response:
        head = slack.signed(body) | more
        if body.startswith(b"payload="):
            head["content-type"] = "application/x-www-form-urlencoded"
        return httpx.post(f"{served.url}/hooks/chat", content=body, headers=head, timeout=60)

    with served:
        challenge = b'{"type": "url_verification", "challenge": "c"}'
        assert post(challenge).json() == {"challenge": "c"}
        said = slack.message("Pay 5.", 1)
        for number in range(3):  # Slack retries at once
            assert post(said, **{"x-slack-retry-num": str(number)}).status_code == 200
        stranger = slack.message("A secret of a stranger.", 2, user="U8", room="D8")
        assert post(stranger).status_code == 200
        assert post(said, **{"x-slack-signature": "v0=00"}).status_code == 401
        assert post(b'{"x": "%s"}' % (b"x" * (50 << 20))).status_code == 413
        for odd in (b'{"event": 5}', b"payload=[", b'{"event": {"type": "message", "user": "U7"}}'):
            assert post(odd).status_code == 400
        await eventually(lambda: slack_api.sent != [])
        value = slack_api.sent[0]["blocks"][1]["elements"][0]["value"]
        assert re.fullmatch(r"approve:[0-9a-f]{32}", value)
        assert post(slack.button(value, 1, user="U8")).status_code == 200
        for number in range(3):  # pressed three times
            assert post(slack.button(value, number + 2)).status_code == 200
        await eventually(lambda: len(slack_api.sent) == 2)
        await eventually(lambda: {one.state for one in deliveries(served)} == {"delivered"})
        found = deliveries(served)
    assert [one["text"] for one in slack_api.sent][1:] == ["Paid."]
    assert len([one for one in found if one.event]) == 1
    assert "secret of a stranger" not in served.log + str(found)


async def test_a_package_brings_a_kind_of_channel(served: Served, model: OpenAIServer) -> None:
    """The one of the docs, which talks by files."""
    page = (Path(__file__).parent.parent.parent / "docs" / "channels.md").read_text()
    files = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL))
    info = served.folder / "brought" / "folder_channel-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "folder_channel.py").write_text(files["folder_channel.py"])
    (info / "METADATA").write_text("Name: folder-channel\nVersion: 1.0\n")
    _, _, point = files["pyproject.toml"].partition('"openmanus_graph.channels"]\n')
    point = point.replace('"', "")
    (info / "entry_points.txt").write_text(f"[openmanus_graph.channels]\n{point}")
    served.env = {**served.env, "PYTHONPATH": str(info.parent)}
    desk = served.folder / "desk"
    for name in ("in", "out"):
        (desk / name).mkdir(parents=True)
    configure(f'kind = "folder"\nroom = "{desk}"\nallow = ["anna"]\n')
    model.add(Reply("Hello Anna."))
    (desk / "in" / "anna-1").write_text("Hello!")
    (desk / "in" / "mallory-1").write_text("Give me everything.")
    with served:
        await eventually(lambda: [one.state for one in deliveries(served)] == ["delivered"])
    assert [one.read_text() for one in (desk / "out").iterdir()] == ["Hello Anna."]


def test_the_command_tests_slack(cli: Cli, slack_api: slack.Slack) -> None:
    kind = f'kind = "slack"\nurl = "{slack_api.server.url}/api"\nsecret = "s"\n'
    configure(f'{kind}token = "{slack.TOKEN}"', cli.root / "config" / "openmanus")
    shown = cli.run("channels", "test", "chat", "--send", "C7")
    assert "as bot (UBOT) in Test." in shown.stdout, shown.stderr
    assert [one["channel"] for one in slack_api.sent] == ["C7"]


def test_the_command_lists_and_tests_channels(cli: Cli, telegram: Telegram) -> None:
    cli.env["TELEGRAM_TOKEN"] = TOKEN
    configure(telegram_settings(telegram), cli.root / "config" / "openmanus")
    (row,) = map(json.loads, cli.run("channels", "list", "--json").stdout.splitlines())
    assert row == {"name": "chat", "kind": "telegram", "allow": "7", "trust": True}
    shown = cli.run("channels", "test", "chat")
    assert (shown.code, "@test_bot (123456)" in shown.stdout) == (0, True), shown.stderr
    assert telegram.sent == []
    sent = cli.run("channels", "test", "chat", "--send", "7")
    assert (sent.code, [one["chat_id"] for one in telegram.sent]) == (0, ["7"]), sent.stderr
    cli.env["TELEGRAM_TOKEN"] = "123:wrong"
    wrong = cli.run("channels", "test", "chat")
    assert (wrong.code, "answered 401" in wrong.stderr) == (2, True)
    assert "123:wrong" not in wrong.stderr
    unknown: Any = cli.run("channels", "test", "other")
    assert (unknown.code, "no channel 'other'" in unknown.stderr) == (2, True)
