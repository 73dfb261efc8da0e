"""Which numbers and plain words of a task name something, and what kind of thing."""

import pytest

from openmanus_graph.safety.said_names import SaidNames, kinds_in
from openmanus_graph.safety.values import NUMBER, plainly_written


def said(text: str) -> SaidNames:
    names = SaidNames()
    names.read(plainly_written(text))
    return names


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("area code 5", "5"), ("error code 5", "5"), ("exit code 5", "5"), ("HTTP code 500", "500"),
        ("My lucky number is 5", "5"), ("number: 5", "5"), ("Chanel No. 5", "5"),
        ("Symphony No. 5", "5"), ("#5 in the charts", "5"), ("#5 on my list: eat", "5"),
        ("rank #1", "1"), ("we're #1", "1"), ("page #3", "3"), ("step #3: open it", "3"),
        ("issue is #1 priority", "1"), ("user 1 of 3", "1"), ("watch channel 5", "5"),
        ("Select 5 for me", "5"), ("Choose 5 and summarise", "5"), ("第5号线", "5"),
        ("5号线地铁", "5"),
        ("5号楼", "5"), ("用户5星好评", "5"), ("订单 5 折", "5"), ("会议是5", "5"),
        ("用户为5", "5"),
        ("第5个文件", "5"), ("give the user 5 stars", "5"),
    ],
)  # fmt: skip
def test_a_code_a_rank_a_title_and_a_counted_number_name_nothing(text: str, value: str) -> None:
    assert not said(text).names(NUMBER + value)


@pytest.mark.parametrize(
    ("text", "value", "argument", "other"),
    [
        ("Delete photo 12", "12", "photo_id", "user_id"),
        ("Delete row 3 of the sheet", "3", "row_id", "file_id"),
        ("Cancel subscription 44", "44", "subscription_id", "order_id"),
        ("Remove the alarm 2", "2", "alarm_id", "user_id"),
        ("Cancel the flight 88213", "88213", "flight_id", "user_id"),
        ("Delete the draft (4)", "4", "draft_id", "user_id"),
        ("删除第3行", "3", "row_id", "user_id"),
        ("删除照片12", "12", "photo_id", "user_id"),
        ("住5号房间", "5", "room_id", "file_id"),
        ("取消订单 5532", "5532", "order_id", "user_id"),
        ("删除第5号文件", "5", "file_id", "user_id"),
    ],
)
def test_a_number_is_an_id_of_the_kind_of_thing_that_it_is_said_of(
    text: str, value: str, argument: str, other: str
) -> None:
    names = said(text)
    assert names.names(NUMBER + value, kinds_in(argument))
    assert not names.names(NUMBER + value, kinds_in(other))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Review and merge the changes", "review"), ("Security and privacy report", "security"),
        ("Marketing is expensive", "marketing"), ("Finance has new rules", "finance"),
        ("Press was mean", "press"), ("add sugar", "sugar"), ("by noon", "noon"),
        ("at once", "once"), ("pay attention", "attention"), ("give advice", "advice"),
        ("remove duplicates", "duplicates"), ("help with taxes", "taxes"),
        ("show me via chart", "chart"), ("server errors", "errors"), ("company rules", "rules"),
        ("contact form", "form"), ("Write it in English for Berlin", "english"),
        ("Search for hotels", "hotels"), ("Answer with JSON", "json"), ("write code", "code"),
    ],
)  # fmt: skip
def test_a_word_of_a_task_receives_nothing(text: str, word: str) -> None:
    assert not said(text).receives([word])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Anna and Bob want the minutes", "anna"), ("Alice wants the minutes", "alice"),
        ("send bob the file", "bob"), ("pay dave 50", "dave"), ("write anna that I'm late", "anna"),
        ("add carla to the channel", "carla"), ("Remove bob from project-x", "bob"),
        ("share it with dave", "dave"), ("post in announcements that we're live", "announcements"),
        ("order water from edeka", "edeka"), ("text mum", "mum"), ("Meet Frank", "frank"),
    ],
)  # fmt: skip
def test_who_gets_something_is_named(text: str, word: str) -> None:
    assert said(text).receives([word])
