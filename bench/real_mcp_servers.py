"""Twenty MCP servers of npm and PyPI: each is added, listed, and one tool called.

    uv run python bench/real_mcp_servers.py            # needs npx, uvx and both registries

Each is added with the command `openmanus mcp add --yes` to an empty configuration, and called with
`openmanus mcp call`. The table goes into docs/mcp-servers.md. A server that wants the internet
answers with its own error where there is none: that is a result too.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "mcp-servers.md"
LIMIT_S = 600
_PLACE = re.compile(r"(?<!/)(?:/[\w.@-]+){2,}/?")
"""A folder of the machine that the table was made on."""


@dataclass(frozen=True)
class Known:
    """A server: its package, its arguments, and a call."""

    package: str
    tool: str
    arguments: str = "{}"
    args: str = ""
    registry: str = "npm"

    @property
    def command(self) -> str:
        runner = "npx -y" if self.registry == "npm" else "uvx"
        return f"{runner} {self.package} {self.args}".strip()


CONVERT = '{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}'
SERVERS = (
    Known("@modelcontextprotocol/server-everything", "echo", '{"message": "hello"}'),
    Known("@modelcontextprotocol/server-filesystem", "list_directory", '{"path": "."}', "."),
    Known("@modelcontextprotocol/server-memory", "read_graph"),
    Known(
        "@modelcontextprotocol/server-sequential-thinking", "sequentialthinking",
        '{"thought": "a", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}',
    ),
    Known("@playwright/mcp", "browser_tabs", '{"action": "list"}',
          "--headless --isolated --no-sandbox --executable-path /usr/bin/chromium"),
    Known("@upstash/context7-mcp", "resolve-library-id", '{"libraryName": "react", "query": "x"}'),
    Known("@wonderwhy-er/desktop-commander", "get_config"),
    Known("@antv/mcp-server-chart", "generate_pie_chart",
          '{"data": [{"category": "a", "value": 1}]}'),
    Known("@bytebase/dbhub", "execute_sql", '{"sql": "SELECT 1"}', "--transport stdio --demo"),
    Known("@agent-infra/mcp-server-commands", "run_command", '{"command": "echo hello"}'),
    Known("@agent-infra/mcp-server-filesystem", "list_allowed_directories",
          args="--allowed-directories ."),
    Known("@eslint/mcp", "lint-files", '{"filePaths": ["/tmp/none.js"]}'),
    Known("mcp-server-time", "convert_time", CONVERT, registry="pypi"),
    Known("mcp-server-git", "git_status", '{"repo_path": "."}', registry="pypi"),
    Known("mcp-server-fetch", "fetch", '{"url": "https://example.com"}', registry="pypi"),
    Known("mcp-server-calculator", "calculate", '{"expression": "6*7"}', registry="pypi"),
    Known("mcp-server-math", "add", '{"a": 1, "b": 2}', registry="pypi"),
    Known("wikipedia-mcp", "search_wikipedia", '{"query": "tea"}', registry="pypi"),
    Known("mcp-server-diff-python", "get-unified-diff",
          '{"string_a": "a", "string_b": "b"}', registry="pypi"),
    Known("mcp-text-editor", "get_text_file_contents",
          '{"files": [{"file_path": "/etc/hostname", "ranges": [{"start": 1}]}]}', registry="pypi"),
    Known("excel-mcp-server", "create_workbook", '{"path": "/tmp/mcp-bench.xlsx"}', "stdio",
          registry="pypi"),
    Known("office-word-mcp-server", "list_available_documents", '{"directory": "/tmp"}',
          registry="pypi"),
    Known("duckduckgo-mcp-server", "search", '{"query": "tea"}', registry="pypi"),
    Known("mcp-server-motherduck", "execute_query", '{"sql": "SELECT 42"}',
          "--db-path :memory: --read-write", registry="pypi"),
    Known("code-index-mcp", "get_settings_info", registry="pypi"),
)  # fmt: skip


def openmanus(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "openmanus_graph.interfaces.cli", *arguments]
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder), "OPENMANUS_HOME": str(folder / "home")}
    return subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=folder, timeout=LIMIT_S
    )


def row_of(known: Known) -> str:
    """Add, list and call one server; return its row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q", name], check=True)
        config = folder / "openmanus.toml"
        config.write_text("")
        try:
            added = openmanus(folder, "mcp", "add", "it", "--yes", "--command", known.command)
            if added.returncode:
                what = " ".join((added.stdout + added.stderr).replace("|", "/").split())
                what = _PLACE.sub("...", what)[:160]
                return f"| `{known.package}` | {known.registry} | | not added: {what} | |"
            stored = folder / "openmanus" / "mcp.json"  # a busy machine starts them slowly
            table = json.loads(stored.read_text())
            table["mcpServers"]["it"] |= {"start_timeout_s": LIMIT_S, "timeout_s": LIMIT_S}
            stored.write_text(json.dumps(table))
            called = openmanus(folder, "mcp", "call", "it", known.tool, known.arguments)
        except subprocess.TimeoutExpired as error:
            return f"| `{known.package}` | {known.registry} | | {type(error).__name__} | |"
    text = " ".join((called.stdout or called.stderr).split())
    text = text.replace("|", "/").replace("`", "'").replace("](", "] (")  # it stands in a table
    text = _PLACE.sub("...", text)
    outcome = "answered" if called.returncode == 0 else "answered with its error"
    listed = re.search(r"\(stdio, (.*), [\d.]+ s\): (\d+ tools)", added.stdout)
    info, tools = listed.groups() if listed else ("", added.stdout)
    return (
        f"| `{known.package}` | {known.registry} | {info} | {tools} | "
        f"`{known.tool}` {outcome}: `{text[:80]}` |"
    )


def main() -> None:
    """Write the table of all servers, or print the rows of those that are named."""
    wanted = [one for one in SERVERS if not sys.argv[1:] or one.package in sys.argv[1:]]
    rows: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        for row in pool.map(row_of, wanted):
            rows.append(row)
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()
    if not sys.argv[1:]:
        head, mark, _ = PAGE.read_text("utf-8").partition("| server |")
        table = f"{mark} registry | name, version and protocol | listed | called |\n"
        table += "| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
        PAGE.write_text(head + table, "utf-8")


if __name__ == "__main__":
    main()
