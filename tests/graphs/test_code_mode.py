"""Code mode: each call that a cell makes is a call of the run, and no cell runs twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.tool_calls.cell import MOST_CALLS
from tests.support.office import Office, cell


async def run_cell(code: str, **context: Any) -> tuple[Office, str]:
    office = Office(cell(code), **context)
    ran = await office.go_on()
    (text,) = ran.results()
    return office, text


async def test_each_call_is_announced_with_its_cell_and_recorded() -> None:
    office = Office(cell("for n in range(3):\n    print(tools.post(row=f'r{n}'))"))
    ran = await office.go_on()
    assert office.posted == ["r0", "r1", "r2"]
    assert ran.results() == ["\n".join(f'{{"row": "r{n}", "number": {n + 1}}}' for n in range(3))]
    events = [
        (one["type"], one["tool"], one.get("parent"))
        for one in ran.events
        if one["type"] in ("tool_start", "tool_end")
    ]
    inner = [("tool_start", "post", "c1"), ("tool_end", "post", "c1")]
    outer = [("tool_start", "python_execute", None), ("tool_end", "python_execute", None)]
    assert events == [outer[0], *inner * 3, outer[1]]
    assert len(ran.model.requests) == 2


@pytest.mark.parametrize(
    "code",
    [
        "print(tools.look(name='a'), tools.look('b'))",
        "print(await tools.look(name='a'), await tools.look('b'))",
        "import asyncio\nprint(*await asyncio.gather(tools.look('a'), tools.look('b')))",
        "import asyncio\nmade = [tools.look(n) for n in 'ab']\nprint(*await asyncio.gather(*made))",
        "import asyncio\nmade = [asyncio.create_task(tools.look(n)) for n in 'ab']\n"
        "print(*[await one for one in made])",
        "import asyncio\nasync def f():\n    return await asyncio.gather(tools.look('a'), "
        "tools.look('b'))\nprint(*asyncio.run(f()))",
        "import asyncio\na = tools.look('a')\nprint(await a, await tools.look('b'))",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as pool:\n    print(*pool.map(tools.look, 'ab'))",
        "print(tools['look'](name='a').text, tools.look('b').upper().lower())",
    ],
)
async def test_a_call_can_be_awaited_or_not(code: str) -> None:
    _, text = await run_cell(code)
    assert "<a> <b>" in text


async def test_results_are_typed() -> None:
    code = """
r = tools.post(row="x")
print(type(r).__mro__[1].__name__, r["number"], r.structured["row"], r.files, r[:5])
"""
    _, text = await run_cell(code)
    assert text == 'str 1 x [] {"row'


async def test_help_shows_signature_and_text() -> None:
    _, text = await run_cell("help(tools.look)\nprint(dir(tools))")
    assert "look(name: str, size: int = 1)" in text
    assert "Look something up." in text
    assert "'post'" in text
    assert "python_execute" not in text
    assert "ask_human" not in text


FORGED = """
def forged(tool):
    made = tools._gate.call(tool, {})
    tools._gate.flush()
    made.result()
forged"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("tools.look(nme='a', x=1)", "There is no argument 'x'"),
        ("tools.nothing()", "There is no tool nothing"),
        ("tools.python_execute(code='1')", "There is no tool python_execute"),
        (f"{FORGED}('python_execute')", "cannot be called in code"),
        (f"{FORGED}('ask_human')", "cannot be called in code"),
    ],
)
async def test_a_wrong_call_is_an_error_in_the_code(code: str, said: str) -> None:
    _, text = await run_cell(code)
    assert said in text
    assert "Traceback" in text


async def test_a_failed_call_is_an_error_that_code_can_catch() -> None:
    office = Office(
        cell("try:\n    tools.post(row='x')\nexcept tools.ToolError as e:\n    print(e)")
    )
    office.failing = {"x"}
    ran = await office.go_on()
    assert "busy" in ran.results()[0]


GATHERED = """
import asyncio
print("before")
await asyncio.gather(*[tools.send(to=f"m{n}@example.com") for n in range(12)])
print("after")
"""


@pytest.mark.parametrize(
    "code",
    [
        GATHERED,
        GATHERED.replace("*[", "*(").replace("(12)]", "(12))"),
        GATHERED.replace("await asyncio", "try:\n    await asyncio").replace(
            'print("after")', 'except BaseException:\n    pass\nprint("after")'
        ),
    ],
)
async def test_gathered_calls_are_asked_about_in_one_list(code: str) -> None:
    office = Office(cell(code), policy="ask")
    await office.go_on()
    asked = await office.open()
    assert len(asked) == 12
    assert office.sent == []
    ran = await office.answer()
    assert office.sent == [f"m{n}@example.com" for n in range(12)]
    (text,) = ran.results()
    assert text.count("sent to m") == 12
    assert "before" in text
    assert text.count("before") == 1
    assert ran.values["status"] == "finished"


async def test_a_rejected_call_of_a_cell_is_reported() -> None:
    office = Office(cell("tools.send(to='a@b.com')\nprint('after')"), policy="ask")
    await office.go_on()
    assert len(await office.open()) == 1
    ran = await office.answer("reject")
    assert office.sent == []
    (text,) = ran.results()
    assert "A person did not allow send" in text
    assert "after" not in text


@pytest.mark.parametrize("caught", ["BaseException", "Exception", "tools.ToolError"])
async def test_catching_the_stop_does_not_help(caught: str) -> None:
    code = f"""
import os
for n in range(3):
    try:
        tools.send(to=f"m{{n}}@b.com")
    except {caught}:
        pass
    try:
        tools.post(row=f"r{{n}}")
    except {caught}:
        pass
"""
    office = Office(cell(code), policy="ask")
    await office.go_on()
    assert len(await office.open()) == 1
    assert office.posted == []
    await office.answer()
    assert (office.sent, office.posted) == (["m0@b.com"], [])


async def test_code_that_goes_on_after_the_stop_is_interrupted() -> None:
    code = """
import time
try:
    tools.send(to="a@b.com")
except BaseException:
    pass
while True:
    time.sleep(0.01)
"""
    office = Office(cell(code), policy="ask")
    await office.go_on()
    assert len(await office.open()) == 1
    ran = await office.answer()
    assert "sent to a@b.com" in ran.results()[0]


async def test_the_same_code_continues_where_it_was_stopped() -> None:
    code = (
        "for n in range(2):\n    tools.post(row=f'r{n}')\n    tools.send(to=f'm{n}@b.com')\n'end'"
    )
    office = Office(*[cell(code)] * 3, policy="ask")
    await office.go_on()
    await office.answer()
    ran = await office.answer()
    assert office.posted == ["r0", "r1"]
    assert office.sent == ["m0@b.com", "m1@b.com"]
    assert "'end'" in ran.results()[-1]


async def test_code_that_ended_makes_its_calls_again() -> None:
    office = Office(*[cell("tools.post(row='x')")] * 2)
    await office.go_on()
    assert office.posted == ["x", "x"]


async def test_code_that_failed_repeats_no_effect_and_tries_again_what_failed() -> None:
    office = Office(*[cell("for n in range(4):\n    tools.post(row=f'r{n}')\n'end'")] * 2)
    office.failing = {"r2"}
    ran = await office.go_on()
    assert office.posted == ["r0", "r1", "r2", "r3"]
    assert "busy" in ran.results()[0]
    assert ran.results()[1] == "'end'"


async def test_equal_calls_of_one_cell_are_different_calls() -> None:
    office, _ = await run_cell("for _ in range(3):\n    tools.post(row='x')")
    assert office.posted == ["x"] * 3


async def test_a_cell_makes_a_limited_number_of_calls() -> None:
    code = """
for n in range(100_000):
    try:
        tools.post(row="x")
    except BaseException:
        pass
print("end")
"""
    office, text = await run_cell(code)
    assert len(office.posted) == MOST_CALLS
    assert f"more than {MOST_CALLS} calls" in text


async def test_a_hundred_thousand_gathered_calls_are_limited() -> None:
    code = "import asyncio\nawait asyncio.gather(*[tools.post(row='x') for n in range(100_000)])"
    office, text = await run_cell(code)
    assert len(office.posted) <= MOST_CALLS
    assert f"more than {MOST_CALLS} calls" in text


async def test_a_long_result_is_cut_and_stored() -> None:
    code = "r = tools.look('x', size=50_000_000 // 3)\nprint(len(r), r[:3], 'left out' in r)"
    _, text = await run_cell(code)
    length, head, cut = text.splitlines()[1].split()
    assert int(length) < 3_000_000
    assert (head, cut) == ("<x>", "True")


async def test_calls_after_the_end_of_the_cell_are_errors() -> None:
    code = """
import threading
go, said = threading.Event(), []
def later():
    go.wait()
    try:
        tools.post(row="late")
    except Exception as error:
        said.append(str(error))
t = threading.Thread(target=later)
t.start()
tools.post(row="first")
"""
    look = "tools_ = tools\ngo.set(); t.join(); print(said)"
    office = Office(cell(code), cell(look), code_mode="on")
    ran = await office.go_on()
    assert office.posted == ["first", "late"], "it is then a call of the next cell"
    assert ran.results()[1] == "[]"
    done = "import threading\nt = threading.Timer(0, print)\nt.start(); t.join()\n"
    done += "gate = tools._gate\ntools.post(row='one')"
    after = "try:\n    gate.call('post', {'row': 'two'})\nexcept Exception as e:\n    print(e)"
    office = Office(cell(done), cell(after))
    ran = await office.go_on()
    assert office.posted == ["one"]
    assert "had ended already" in ran.results()[1]


async def test_what_code_prints_of_untrusted_results_is_marked() -> None:
    _, text = await run_cell("print(tools.look(name='a'))")
    assert text.splitlines()[0].startswith("<untrusted")
    assert "<a>" in text
    _, plain = await run_cell("print(1)")
    assert plain == "1"


async def test_a_death_of_the_kernel_reports_the_calls() -> None:
    office, text = await run_cell("tools.post(row='x')\nimport os\nos._exit(1)")
    assert office.posted == ["x"]
    assert "Calls that had succeeded before: post (1)" in text


@pytest.mark.parametrize(("mode", "works"), [(None, False), ("on", True)])
async def test_a_small_model_has_code_mode_only_if_it_is_switched_on(
    mode: Any, works: bool
) -> None:
    seen = "print(tools.look('a') if 'tools' in globals() else 'no tools')"
    office = Office(cell(seen), code_mode=mode, profile="small")
    ran = await office.go_on()
    (text,) = ran.results()
    assert ("<a>" in text, text == "no tools") == (works, not works)
    assert ("tools.NAME" in str(ran.model.options)) == works


async def test_without_code_mode_there_is_no_object() -> None:
    _, text = await run_cell("tools.post(row='x')", code_mode="off")
    assert "NameError" in text
    office = Office(cell("1"), code_mode="off")
    ran = await office.go_on()
    assert "tools.NAME" not in str(ran.model.options)


async def test_a_cut_off_cell_does_not_run_again_and_its_calls_are_told() -> None:
    code = "print(tools.post(row='a'))\nopen('ran', 'a').write('x')\ntools.wait(name='w')"
    office = Office(cell(code))
    run = asyncio.ensure_future(office.go_on())
    await office.under_way.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    ran = await office.go_on(None)
    (text,) = ran.results()
    assert "cut off" in text
    assert '1. post {"row":"a"}' in text
    assert office.posted == ["a"]
    assert await asyncio.to_thread(Path("work/ran").read_text) == "x"
