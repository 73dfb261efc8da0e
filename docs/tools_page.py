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

The tools that models can call, generated from the code by `uv run python docs/make.py`.
[Extending](extending.md) explains how to write your own. [Security](security.md) explains what the
declarations protect.

* **effect**: `read_only` changes nothing and may run twice. `workspace` changes files or processes
  of the sandbox. `external` reaches the outside world, where nothing can be undone.
* **in order**: Calls of one reply that use the same resource run one after another. Other calls
  can run in parallel.
* **time limit**: The call is stopped after this time. If the tool has a parameter `timeout_s`, the
  model can set it. Otherwise `timeout_s` of `[sandbox]` applies. Output that Python or the shell
  printed before is shown.
* **untrusted**: The output comes from outside and is [marked](security.md#text-from-outside) for
  the model.
* **approval**: With the policy `ask`, each call waits for a person. [Rules](approvals.md) can
  change this per call.

A result can have up to 2 % of the model's context window (at four characters per token), and at
least 7,000 characters. Results up to 15 % longer are shown in full. In longer ones, lines in the
middle are left out. A mark names them and the file with the full text, which `read_file`, `view`
and the sandbox can open. These files, fetched documents and pictures are in the thread's private
folder in `OPENMANUS_HOME`, outside the workspace, so `grep -r`, `find` and `git add -A` do not see
them. Equal content is stored once.

## Which agent has which tools

{matrix}

`manus`, `planner` and `mcp` also get the tools of the configured MCP servers, named
`mcp_SERVER_TOOL`. They are untrusted and need approval unless the server declares that a tool only
reads. Installed packages can add tools through entry points, which `manus` and `planner` get.
`tools` in `openmanus.toml` or `Context` selects some of an agent's tools. `+NAME` adds an
[optional one](#optional-tools). If a response format is set, every agent also gets
`create_chat_completion`, whose parameters are the fields of that format.

{tools}

## Optional tools

Agents get these tools only if you add them in `tools`: `["+read_untrusted"]` keeps all other
tools, and `["bash", "+read_untrusted"]` offers only these two.

* Use `read_untrusted` for text that may contain injected instructions, such as mail or pages that
  anybody can edit. A model without tools reads the text, and the agent gets only short fields that
  match a JSON schema. It costs a model call. Numbers, dates, enums and booleans cannot contain
  instructions, but a short text can. For the [value rules](information-flow.md#verified-values)
  all of these fields are untrusted.
* `memory` keeps [notes](memory.md) across threads.
* `delegate` lets [another agent](agents.md#subagents) do a part of the work.

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
        f"approval: {'yes' if traits.approval else 'no'}",
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
