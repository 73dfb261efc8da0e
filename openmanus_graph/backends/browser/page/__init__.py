"""One page as the model knows it: what it shows, what changed, and how to act on it."""

from openmanus_graph.backends.browser.page.changes import change_text
from openmanus_graph.backends.browser.page.dropdown import dropdown_options, select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text, send_keys, upload_file
from openmanus_graph.backends.browser.page.pointer import (
    click,
    click_at,
    drag_and_drop,
    drag_to_point,
    drag_to_text,
    hover,
    scroll,
    scroll_to_text,
)
from openmanus_graph.backends.browser.page.recorded_target import (
    RecordedTarget,
    find_target,
    record_point,
    record_target,
)
from openmanus_graph.backends.browser.page.snapshot import Element, Line, Snapshot
from openmanus_graph.backends.browser.page.text import full_text
from openmanus_graph.backends.browser.page.view import (
    ActionReport,
    PageView,
    Target,
    marked_screenshot,
    prepare_context,
)

__all__ = [
    "ActionReport",
    "Element",
    "Line",
    "PageView",
    "RecordedTarget",
    "Snapshot",
    "Target",
    "change_text",
    "click",
    "click_at",
    "drag_and_drop",
    "drag_to_point",
    "drag_to_text",
    "dropdown_options",
    "find_target",
    "full_text",
    "hover",
    "input_text",
    "marked_screenshot",
    "prepare_context",
    "record_point",
    "record_target",
    "scroll",
    "scroll_to_text",
    "select_dropdown_option",
    "send_keys",
    "upload_file",
]
