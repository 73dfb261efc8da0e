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

This page lists the tools that models can call. `uv run python docs/make.py` generates it from the
code. [Extending](extending.md) explains how to write your own tools. [Security](security.md)
explains what the declarations protect.

Each tool declares these properties:

| property | meaning |
| --- | --- |
| effect | `read_only`: the call changes nothing and may run twice. `workspace`: the call \
changes files or processes of the sandbox. `external`: the call changes the outside world and \
cannot be undone. |
| in order | The resource that a call uses. Calls of one reply that use the same resource run \
one after another, in the model's order. Only independent calls run in parallel: `read_only` \
calls without a common resource, calls on different files, and calls of `delegate`. |
| time limit | The call is stopped after this time. "As configured": the model can set \
`timeout_s`, and the default is `timeout_s` of `[sandbox]`. If a Python or shell call is \
stopped, the output so far is shown. |
| untrusted | Whether the output comes from outside and is [marked as \
untrusted](security.md#text-from-outside) for the model. |
| approval | Whether you are asked before each call, if the policy is `ask`. \
[Rules](approvals.md) can change this for single calls. |

**Length of results.** A result can have up to 2 % of the model's context window (at four characters
per token), but at least 7,000 characters. Results that are up to 15 % longer are shown in full. In
longer results, lines in the middle are left out. A note tells the model which lines are missing and
which file contains the full text. `read_file`, `view` and the sandbox can open that file.

**Office documents.** `read_file` knows a document by its content, whatever its suffix, the names of
its parts or its namespaces. The table says what is shown.

| format | what is shown |
| --- | --- |
| Excel (`.xlsx`, `.xlsm`, templates) | The names and ranges of the sheets, the cells, formulas \
that were never calculated, notes. `pages` takes `2`, `Sales`, `Sales!A5:H10`, `'My Sheet'!A:C` \
and lists of these. |
| Excel (`.xls`, `.xlsb`), OpenDocument (`.ods`) | The names, sizes and cells of the sheets. |
| Word (`.docx`, `.docm`, templates) | Text, tables, text boxes, inserted documents, charts, \
notes, comments, headers and footers. Tracked changes are marked `[+inserted+]` and \
`[-deleted-]`. |
| PowerPoint (`.pptx`, `.ppsx`, templates) | Text, tables, charts, diagrams, names of pictures, \
notes. Hidden slides are marked. |
| OpenDocument (`.odt`, `.odp`), RTF, MHTML, Excel XML of 2003, HTML named `.doc` or `.xls` | \
The text and the tables. |

Documents with a password are read with `password`. A damaged document is shown as far as it can be
read, and the result says so. `.doc` and `.ppt` of Office 97 have to be converted, for example with
LibreOffice.

**Where files are stored.** Full texts, fetched documents and pictures are in the thread's private
folder in `OPENMANUS_HOME`. The folder is outside the workspace, so `grep -r`, `find` and
`git add -A` do not see it. Equal content is stored once.

**Documents.** `read_file` reads these files in a separate process without network:

* **PDF:** the text of each page, the values of filled forms (not of XFA), comments and stamps.
  A page without text, such as a scan, comes as a picture for models that see, three pages per call.
  If `tesseract` is installed (`apt install tesseract-ocr`), the text of up to eight such pages per
  call is recognized.
* **Encrypted PDF:** the same, with `password`. To keep a password from the model, set
  `OPENMANUS_SECRET_NAME=PASSWORD@files` and tell the model to use `<secret>name</secret>`.
* **Mail** (`.eml`, `.mbox`, Outlook's `.msg`): headers, text and attachments. Up to 20
  attachments are saved, and the result names their files. Encrypted mail (S/MIME, PGP) and
  `winmail.dat` are named as such.
* **Text:** the encoding is decided over the whole file. The first line of the result says how many
  bytes cannot be decoded, and where the first one is.

The last line of a document's result, `[Text: PATH]`, names a file with its whole text (up to ten
million characters, or what five seconds allow). Python and the shell can read it.

A file name that is not UTF-8 is listed as bash quotes it, such as `$'caf\\xe9.txt'`. `read_file`
and `str_replace_editor` take the name in this form. In Python use `b"caf\\xe9.txt"`.

## Which agent has which tools

{matrix}

Agents can get more or fewer tools:

* **MCP servers.** `manus`, `planner` and `mcp` also get the tools of the configured MCP servers.
  Their names are `mcp_SERVER_TOOL`. These tools are untrusted. They need approval unless the
  server declares that a tool only reads.
* **Packages.** Installed packages can add tools through entry points. `manus` and `planner` get
  these tools.
* **Selection.** `tools` in `openmanus.toml` or `Context` selects some of an agent's tools. `+NAME`
  adds an [optional tool](#optional-tools).
* **Response format.** If a response format is set, every agent also gets `create_chat_completion`.
  Its parameters are the fields of that format.

{tools}

## Optional tools

Agents get these tools only if you add them in `tools`:

* `["+read_untrusted"]` adds the tool and keeps all other tools.
* `["bash", "+read_untrusted"]` offers only these two tools.

| tool | use it to |
| --- | --- |
| `read_untrusted` | read text that may contain injected instructions, such as e-mail or pages \
that anybody can edit |
| `memory` | keep [notes](memory.md) across threads |
| `search_library` | find passages in [documents](library.md); `library` in the configuration, or \
`--library`, adds it by itself |
| `delegate` | let [another agent](agents.md#subagents) do a part of the work |

With `read_untrusted`, a model without tools reads the text. The agent gets only short fields that
match a JSON schema. This costs a model call. Numbers, dates, enums and booleans cannot contain
instructions, but a short text can. The [value rules](information-flow.md#verified-values) treat all
of these fields as untrusted.

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
