"""Write `docs/tools.md` from the tools' own declarations."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from openmanus_graph.graphs.catalog import FLOW, agent_names, agent_tools, is_ours
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tools import optional_tools

AGENTS = [name for name in agent_names() if is_ours(name) and name != FLOW]
"""The flow has no tools of its own."""

_PAGE = """\
# Tools

What a model can call, as the code declares it; `uv run python docs/make.py` makes this page.
[extending.md](extending.md) says how to write a tool of your own, [security.md](security.md) what
the declarations mean for safety.

* **effect**: `read_only` changes nothing, may run twice; `workspace` changes files or
  processes of the sandbox; `external` reaches the world outside, where nothing can be undone.
* **in order**: calls of one reply that name the same resource run one after another, others at
  once.
* **time limit**: a call is ended after so many seconds. Where `timeout_s` is a parameter, the
  model may choose; where it does not, `timeout_s` of `[sandbox]` holds. What Python and shell
  have printed by then is shown.
* **untrusted**: the output comes from outside and is [marked](security.md#text-from-outside) as
  such for the model.
* **asked about**: with the policy `ask` each call waits for a person. [Rules](approvals.md) say
  more, call by call.

One observation may have 2 % of the model's window (at four characters a token), at least 7,000
characters; up to 15 % more is shown whole. From a longer one lines in the middle are left out: the
mark names them, and the file that holds the whole, for `read_file`, `view` and the sandbox. These
files, fetched documents and pictures lie outside of the workspace, in the thread's private folder
below `OPENMANUS_HOME`: `grep -r`, `find` and `git add -A` meet none of them. Equal content is one
file.

## Which agent has which tools

{matrix}

`manus`, `planner` and `mcp` also get the tools of the configured MCP servers, named
`mcp_SERVER_TOOL`; these are untrusted, and asked about unless the server says that a tool only
reads. Packages bring more by entry points, which `manus` and `planner` get. `tools` in
`openmanus.toml` or `Context` picks some of an agent's tools; `+NAME` in it adds an
[optional one](#optional-tools). If the caller gives a response format, every agent has
`create_chat_completion` as well, which takes that format's fields.

{tools}

## Optional tools

No agent has them unless `tools` adds them, `tools = ["+read_untrusted"]` beside all others, or
`["bash", "+read_untrusted"]`. `read_untrusted` pays where texts may give orders (mail, pages that
anybody writes): a model without tools reads, and the agent gets short fields that fit a JSON
schema, never the text. It costs a model call. Fields that are numbers, dates, enums or true/false
carry no orders; a short text may. For the rules about
[values](information-flow.md#verified-values) all are foreign. `memory` keeps notes over threads:
[memory.md](memory.md).

`delegate` has [another agent](agents.md#subagents) do a part of the work.

{optional}
"""


def tools_page() -> str:
    """Write the page."""
    tools = {tool.name: tool for agent in AGENTS for tool in agent_tools(agent)}
    sections = "\n\n".join(map(_section, tools.values()))
    optional = "\n\n".join(f"#{_section(tool)}" for tool in optional_tools())
    return _PAGE.format(matrix=_matrix(tools), tools=sections, optional=optional)


def _matrix(tools: Mapping[str, BaseTool]) -> str:
    has = {agent: {tool.name for tool in agent_tools(agent)} for agent in AGENTS}
    rows = [
        _row([f"[`{name}`](#{name})", *("✓" if name in has[agent] else "" for agent in AGENTS)])
        for name in tools
    ]
    return "\n".join([_row(["tool", *AGENTS]), _row(["---", *[":-:"] * len(AGENTS)]), *rows])


def _section(tool: BaseTool) -> str:
    declared: dict[str, Any] = convert_to_openai_tool(tool)["function"]
    schema = declared.get("parameters", {})
    traits = traits_of(tool)
    facts = [
        f"effect {_effect(traits, tool)}",
        f"in order: {_resource(traits, schema)}",
        f"time limit {_time_limit(traits)}",
        f"untrusted: {'yes' if traits.untrusted else 'no'}",
        f"asked about: {'yes' if traits.approval else 'no'}",
    ]
    required = schema.get("required", ())
    rows = [
        _row(
            [
                f"`{name}`",
                _kind(given),
                _default(name, given, required),
                given.get("description", ""),
            ]
        )
        for name, given in schema.get("properties", {}).items()
    ]
    table = "\n".join([_row(["parameter", "type", "default", "meaning"]), _row(["---"] * 4), *rows])
    description = " ".join(declared["description"].split())
    return f"## {tool.name}\n\n{description}\n\n{' · '.join(facts)}\n\n{table}"


def _effect(traits: Traits, tool: BaseTool) -> str:
    """Name the effect, or each one with the calls that have it."""
    if not callable(traits.effect):
        return f"`{traits.effect}`"
    fields: Any = tool.tool_call_schema  # a model class: the tool is declared by a function
    name = "action" if "action" in fields.model_fields else "command"
    found: dict[str, list[str]] = {}
    for value in get_args(fields.model_fields[name].annotation):
        found.setdefault(traits.effect_of({name: value}), []).append(f"`{value}`")
    parts = [f"`{effect}` for {', '.join(values)}" for effect, values in sorted(found.items())]
    return "; ".join(parts)


def _time_limit(traits: Traits) -> str:
    return "as configured" if traits.timeout_s is None else f"{traits.timeout_s:g} s"


def _resource(traits: Traits, schema: Mapping[str, Any]) -> str:
    if traits.resource is None:
        return "no"
    placeholders = {name: f"<{name}>" for name in schema.get("properties", {})}
    return f"`{traits.resource_of(placeholders)}`"


def _kind(given: Mapping[str, Any]) -> str:
    """Write a JSON schema's type in a few words."""
    if "enum" in given:
        return ", ".join(f"`{value}`" for value in given["enum"])
    if "anyOf" in given:
        kinds = (_kind(part) for part in given["anyOf"] if part.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if given.get("type") == "array":
        return f"list of {_kind(given['items'])}"
    return str(given.get("type", "any"))


def _default(name: str, given: Mapping[str, Any], required: Sequence[str]) -> str:
    if name in required:
        return "required"
    value = given.get("default")
    return "" if value in (None, "") else f"`{str(value).lower()}`"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
