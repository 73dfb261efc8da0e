"""Do tasks of `bench.applications` with browser-use, as its agent with a model that is scripted.

Runs in an environment of its own (`bench.applications --beside-browser-use` makes it) and prints
one line of JSON. The policies know what the agent's model is shown and nothing else: what its last
action said, and its list of the page. They were mended on these pages; where one way was given up,
others may not have been tried (bench/README.md says which).
"""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportOptionalMemberAccess=false

import asyncio
import json
import os
import re
import sys
from math import ceil

for name, value in (
    ("ANONYMIZED_TELEMETRY", "false"),
    ("BROWSER_USE_LOGGING_LEVEL", "result"),
    ("BROWSER_USE_VERSION_CHECK", "false"),
    ("SKIP_LLM_API_KEY_VERIFICATION", "true"),
):
    os.environ[name] = value

from browser_use import Agent, BrowserSession  # noqa: E402  # reads the environment
from browser_use.llm.views import ChatInvokeCompletion  # noqa: E402

STEPS = 100
SCROLLS, LIST_PAGES = 25, 0.3
"""A list of options shows some eight at a time: about a third of the window."""
_ENTRY = re.compile(r"(\t*)(?:\|\w[^|]*\|)?\*?(?:\|scroll element)?\[(\d+)\](<.*)")


class Lost(Exception):
    """What a policy looks for was not said."""


class Reader:
    """A policy's hands, and the agent's model: it answers each request with the next action."""

    provider = name = model = model_name = "script"
    _verified_api_keys = True

    def __init__(self, session):
        self.session = session
        self.requests, self.actions = asyncio.Queue(), asyncio.Queue()
        self.state, self.calls, self.tokens, self.false_successes = "", 0, 0, []

    async def ainvoke(self, messages, output_format=None, **_):
        """Answer a request of the agent, as its model."""
        await self.requests.put(messages[-1].text)
        action = await self.actions.get()
        thought = {"evaluation_previous_goal": "", "memory": "", "next_goal": ""}
        reply = output_format.model_validate({**thought, "action": [action]})
        return ChatInvokeCompletion(completion=reply, usage=None)

    async def __call__(self, action, *, says="", true="", **args):
        """Act; Lost if what is shown then does not match `says`."""
        self.calls += 1
        await self.actions.put({action: args})
        request = await self.requests.get()
        result = request.split("</agent_history>")[0].rpartition("\nResult\n")[2].strip()
        self.state = request.partition("<browser_state>")[2].partition("</browser_state>")[0]
        seen = f"{result}\n{self.state}"
        self.tokens += ceil(len(seen) / 4)
        if os.environ.get("SHOW"):
            sys.stderr.write(f"--- {action} {args}\n{seen}\n")
        if not re.search(says, seen) or re.match("Failed|Error", result):
            raise Lost(f"{action} {args}: {says!r} is not in\n{seen[-3000:]}")
        if true and not await self.is_true(true):
            self.false_successes.append(f"{action} {args}: {result}")
        return seen

    async def is_true(self, script):
        """Ask the page whether something was done, for the record."""
        page = await self.session.get_current_page()
        return str(await page.evaluate(f"() => String(!!({script}))")) == "true"

    def index(self, words, after="", place=0):
        """Return the index of an element with these words, the first behind a line."""
        lines, found, passed = self.state.splitlines(), [], not after
        for at, line in enumerate(lines):
            passed = passed or bool(re.search(after, line))
            entry = _ENTRY.match(line)
            if not entry or not passed:
                continue
            text = [entry[3]]
            for further in lines[at + 1 :]:
                if _ENTRY.match(further) or not further.startswith(entry[1] + "\t"):
                    break
                text.append(further.strip())
            if re.search(words, " ".join(text)):
                found.append(int(entry[2]))
        if not found or len(found) <= place:
            raise Lost(f"nothing is called {words!r} after {after!r} in\n{self.state}")
        return found[place]

    async def click(self, words, after="", place=0, **more):
        """Click an element."""
        return await self("click", index=self.index(words, after, place), **more)

    async def type(self, words, text, after="", **more):
        """Type into an element."""
        return await self("input", index=self.index(words, after), text=text, **more)

    async def choose(self, words, after, option, **more):
        """Open a list that is not native, page through it until the option shows, and click it."""
        await self.click(words, after)
        wanted = rf"title={option}(?: |$)|> {option}$"
        for _ in range(SCROLLS):
            try:
                index = self.index(wanted, after)
            except Lost:
                # With the index of an option nothing moves: its list has none of its own.
                await self("scroll", down=True, pages=LIST_PAGES, index=None)
            else:
                return await self("click", index=index, **more)
        raise Lost(f"the option {option!r} was never listed")


async def _leaflet(on):
    await on.click("Zoom in", says="Clicked", true="map.getZoom() === 6")
    await on.click("Munich", says="weather in Munich")
    await on.click("Close popup")
    await on.click("Layers", says="Rivers")
    await on.click("checkbox", after="Rivers|", true="map.hasLayer(rivers)")


async def _bootstrap(on):
    await on.click("navbar-toggler|Toggle|<button", says="Articles")
    await on.click("Articles", says="Mugs")
    await on.click("Mugs", true="location.hash === '#mugs'")
    await on.click("Prices", says="costs 7.20")
    await on.click("> Order$", says="Order a mug")
    await on.click("checkbox", true="gift.checked")
    await on.click("> Order it", true="ordered.gift")


async def _antd(on):
    await on.choose("combobox", "Owner", "Users", true="state.owner === 'Users'")
    await on.choose("combobox", "Many", "Option 45", true="state.many === 'v45'")
    await on.choose("combobox", "Tags", "Option 3", true="state.tags == 'v3'")
    await on.choose("combobox", "Tags", "Option 50", true="state.tags.length === 2")
    await on("send_keys", keys="Escape")  # the list stays open
    await on.type("Select date", "2031-03-09")
    await on("send_keys", keys="Enter", true="state.due === '2031-03-09'")
    await on.click("switch", true="state.open === true")
    await on.click("> Publish", says="All will see it")
    await on.click("> OK", true="state.published")
    await on.click("> Delete", after="Green", says="Delete Green\\?")
    await on.click("> OK", after="Delete Green", true="state.rows == 'Red,Blue'")
    await on("wait", seconds=1, true="state.page === 'none'")


async def _element_plus(on):
    await on.choose("combobox", "Owner", "Users", true="state.owner === 'Users'")
    await on.choose("combobox", "Colour", "Green", true="state.colour === 'Green'")
    await on.choose("combobox", "^\\s*Row$", "Row 120", true="state.row === 120")
    await on.click("<input", after="^\\s*City$", says="Germany")
    await on.click("Germany", says="Munich")
    await on.click("Munich", true="state.city == 'de,m'")
    await on.click("> Open", says="Send it\\?")
    await on.click("> Send$", true="state.said === 'sent'")
    await on("wait", seconds=1, true="state.page === '' && state.owner === 'Users'")


async def _django(on):
    await on.type("username", "ada")
    await on.type("password", "count-on-it")
    await on.click("Log in", says="Site administration")
    await on.click("> Add$", says="Add group")  # the name beside it, Groups, is not listed
    await on.type("name=name", "Editors")
    wanted = "Authentication and Authorization | group | Can add group"
    await on("select_dropdown", index=on.index("id_permissions_from|permissions_old"), text=wanted)
    await on.click("id=id_permissions_add />")
    await on.click("name=_save", says="added successfully")
    await on.click("> Editors", says="Change group")
    await on(
        "wait",
        seconds=1,
        true=("document.querySelector('#id_permissions_to').options.length === 1"),
    )
    await on.click("> Users", says="Select user to change")
    await on.click("> ada", says="Change user")
    await on("find_text", text="Last login", says="Calendar|calendar|Choose a Date")
    await on.click("Choose a Date|> Calendar|calendar", after="Last login", says="15")
    await on.click("> 15$", true="id_last_login_0.value.endsWith('-15')")


POLICIES = {
    "antd": _antd,
    "Element Plus": _element_plus,
    "Leaflet": _leaflet,
    "Bootstrap": _bootstrap,
    "Django admin": _django,
}


async def _measure(name, url, chromium):
    session = BrowserSession(
        headless=True, executable_path=chromium, chromium_sandbox=False,
        enable_default_extensions=False, viewport={"width": 1280, "height": 720},
    )  # fmt: skip
    reader, lost = Reader(session), ""
    agent = Agent(
        task="Do it.", llm=reader, browser_session=session, use_vision=False, use_judge=False,
        enable_planning=False, use_thinking=False, directly_open_url=False, max_actions_per_step=1,
        loop_detection_enabled=False, message_compaction=False, enable_signal_handler=False,
    )  # fmt: skip
    run = asyncio.create_task(agent.run(max_steps=STEPS))
    try:
        await reader.requests.get()
        await reader("navigate", url=url, new_tab=False)
        await POLICIES[name](reader)
    except Lost as error:
        lost = str(error)
    run.cancel()
    await session.kill()
    done = not lost and not reader.false_successes
    return done, reader.calls, reader.tokens, reader.false_successes, lost


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(*sys.argv[1:]))))  # noqa: T201
