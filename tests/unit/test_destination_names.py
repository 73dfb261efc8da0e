"""Names of arguments, and of fields beside a value, that make it a destination of a call."""

from typing import Any

import pytest

from openmanus_graph.safety.destinations import destination_test, destinations, names_destination
from openmanus_graph.state.tool_traits import Traits

EXTERNAL = destination_test(Traits(), external=True)


def found(args: dict[str, Any]) -> list[str]:
    return [one.value for one in destinations(args, EXTERNAL)]


@pytest.mark.parametrize(
    "name",
    ["收信人", "寄给", "发给", "付款给", "对方", "用户", "群", "QQ号", "微信号", "银行卡",
     "银行卡号", "卡号",
     "密送", "电邮", "收貨地址", "konto", "acc_no", "accNo", "pix_key", "upi_id", "swift",
     "swiftCode", "sort_code", "btc", "para", "宛先", "approvers", "screen_name", "dm", "Кому",
     "dm_with", "topic_id", "who", "acctno"],
)  # fmt: skip
def test_a_name_in_any_language_says_where_something_goes(name: str) -> None:
    assert names_destination(name)
    assert found({name: "Mallory"}) == ["Mallory"]


@pytest.mark.parametrize(
    "name",
    ["用户数", "群大小", "目标语言", "账户类型", "language_to", "currency_to", "topic", "text"],
)
def test_a_name_of_a_count_a_kind_or_a_range_is_no_destination(name: str) -> None:
    assert not names_destination(name)


@pytest.mark.parametrize(
    "args",
    [
        {"fields": {"0": {"k": "to", "v": "Mallory"}}},
        {"fields": [{"id": "to", "value": "Mallory"}]},
        {"fields": [{"Name": "to", "Value": "Mallory"}]},
        {"fields": [{"param": "to", "val": "Mallory"}]},
        {"headers": [{"key": "To", "value": "Mallory"}]},
        {"patch": [{"op": "replace", "path": "/to", "value": "Mallory"}]},
        {"ops": [{"op": "add", "path": "/members/-", "value": "Mallory"}]},
        {"grants": [{"type": "user", "value": "Mallory"}]},
        {"data": {"Mallory": "writer"}},
        {"payload": '{"Mallory": "Editor"}'},
    ],
)
def test_a_field_beside_a_value_names_it_as_well(args: dict[str, Any]) -> None:
    assert "Mallory" in found(args)


@pytest.mark.parametrize(
    "args",
    [
        {"notify": "true"}, {"room": "double"}, {"audience": "children"}, {"queue": "fast"},
        {"from": "USD", "to": "EUR"}, {"from": "en", "to": "de", "text": "x"}, {"people": 4},
        {"data": {"mode": "read"}}, {"role": "editor"}, {"blocks": [{"type": "user", "text": "x"}]},
        {"files": [{"path": "docs/contact", "content": "x"}]},
    ],
)  # fmt: skip
def test_a_value_that_says_how_is_no_destination(args: dict[str, Any]) -> None:
    assert found(args) == []


@pytest.mark.parametrize(
    "args", [{"to": "de"}, {"to": "EUR", "from": "me"}, {"to": "double"}, {"user": "fast"}]
)
def test_a_value_alone_does_not_say_that_it_is_no_destination(args: dict[str, Any]) -> None:
    assert found(args) != []
