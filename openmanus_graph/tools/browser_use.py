"""`browser_use`: a real browser."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.backends.browser import action_specs
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.safety.urls import begins_with_file
from openmanus_graph.state.addresses import is_path, with_scheme
from openmanus_graph.state.context import Effect
from openmanus_graph.state.tool_traits import InformationFlow, Observation, PageUse
from openmanus_graph.tool_calls.declaration import MaybeNumber, MaybeText, manus_tool
from openmanus_graph.tools.web import note_named, unasked_openings

TIMEOUT_S = 180

ActionName = Literal[
    "go_to_url", "get_state", "click_element", "input_text", "send_keys", "scroll_down",
    "scroll_up", "scroll_to_text", "get_dropdown_options", "select_dropdown_option",
    "extract_content", "web_search", "go_back", "refresh", "open_tab", "switch_tab", "close_tab",
    "wait", "hover", "click_at", "drag_and_drop", "upload_file", "handle_dialog", "save_pdf",
    "evaluate",
]  # fmt: skip


def effect_of(args: Mapping[str, Any]) -> Effect:
    """Return what a call may change: only acting on a page may do something in the world."""
    spec = action_specs.ACTION_SPECS.get(str(args.get("action")), action_specs.ActionSpec())
    return "external" if spec.has_effects else "read_only"


def addresses_of(args: Mapping[str, Any]) -> Sequence[str]:
    """Return the address that a call opens. A path may be a file of the workspace, never more."""
    url = str(args.get("url") or "")
    is_file = is_path(url) or begins_with_file(url)
    return [with_scheme(url)] if url and not is_file else []


def page_use(args: Mapping[str, Any]) -> PageUse:
    """Return what a call gives to the page, and whether it shows one that it does not name."""
    action = str(args.get("action"))
    spec = action_specs.ACTION_SPECS.get(action, action_specs.ActionSpec())
    entered = str(args.get(spec.enters) or "")
    if action == "send_keys" and all(map(action_specs.press_name, entered.split())):
        entered = ""
    opens = next(iter(addresses_of(args)), "") if "url" in spec.required else ""
    acts = action == "hover" or spec.has_effects
    return PageUse([entered] if entered else [], opens, switches=spec.switches, acts=acts)


def is_composed(args: Mapping[str, Any]) -> bool:
    """Return True if a model writes what a call returns: it answers a question about the page."""
    return args.get("action") == "extract_content" and bool(args.get("goal"))


@manus_tool(
    effect=effect_of,
    resource=action_specs.HANDLE,
    timeout_s=TIMEOUT_S,
    untrusted=True,
    approval=False,
    flow=InformationFlow(addresses=addresses_of, guarded=True, page=page_use, composed=is_composed),
)
async def browser_use(  # the model is not shown `runtime`
    action: Annotated[ActionName, WithJsonSchema({"type": "string"})],
    runtime: ToolRuntime[Any, Any],
    url: MaybeText = None,
    index: MaybeNumber = None,
    label: MaybeText = None,
    text: MaybeText = None,
    scroll_amount: MaybeNumber = None,
    tab_id: MaybeNumber = None,
    query: MaybeText = None,
    goal: MaybeText = None,
    keys: MaybeText = None,
    seconds: MaybeNumber = None,
    target_index: MaybeNumber = None,
    x: MaybeNumber = None,
    y: MaybeNumber = None,
    accept: bool = True,
) -> Observation:
    """Drive a browser. Opens workspace files and your servers.

    Args:
        action: get_state, go_to_url(url), open_tab(url), switch_tab, close_tab,
            go_back, refresh, click_element(index, text?: double, right, long),
            click_at(x, y), hover(index), input_text(index, text), send_keys,
            select_dropdown_option(index, text), get_dropdown_options(index),
            upload_file(index?, text: paths), drag_and_drop(index, target_index | text | x, y),
            scroll_down(index?, x?), scroll_up, scroll_to_text(text),
            extract_content(text?: save.csv), web_search, handle_dialog(text?), wait, save_pdf,
            evaluate(text: JavaScript, your pages).
        url: Address.
        index: Of an element: [3] button "Save".
        label: Save; instead of index.
        text: See action.
        scroll_amount: Pixels.
        tab_id: Of a tab.
        query: For web_search.
        goal: For extract_content.
        keys: Control+A Delete
        seconds: To wait.
        target_index: Drop there.
        x: Pixels.
        y: Pixels.
        accept: The dialog.
    """
    if action in ("click_element", "hover", "get_dropdown_options") and index is None and not label:
        label = text  # a label under another name: these take no other text without an index
    given = action_specs.ActionArguments(
        url, index, label, text, scroll_amount, tab_id, query, goal, keys, seconds, target_index,
        x, y, accept,
    )  # fmt: skip
    action_specs.check_required_arguments(action, given)
    await asyncio.to_thread(import_module, "openmanus_graph.backends.browser.actions")  # slow
    from openmanus_graph.backends.browser.actions import run_action

    call = call_runtime(runtime)
    note_named(runtime)
    openings = unasked_openings(runtime) if action == "web_search" else None
    return await run_action(call.session, action, given, call.ask_model, call.repeats, openings)
