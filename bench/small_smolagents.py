"""One small task, done by an agent of smolagents; prints what came of it as JSON.

Runs in the sandbox, in the task's folder, with an environment of its own.
"""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import json
import os
import sys
from pathlib import Path

from smolagents import CodeAgent, LogLevel, OpenAIModel, ToolCallingAgent, tool

sys.path.append(str(Path(__file__).parent))

from small_tools import bash, python, read_file, write_file  # a script beside it


def _agent(given):
    model = OpenAIModel(
        given["model"], api_base=given["base_url"], api_key="none",
        client_kwargs={"max_retries": 1}, **given["options"],
    )  # fmt: skip
    common = {"model": model, "verbosity_level": LogLevel.OFF, "max_steps": given["calls"] - 1}
    if given["harness"] == "smolagents-code":  # its Python is its own; here it may open files
        return CodeAgent(
            tools=[tool(one) for one in (bash, read_file, write_file)],
            additional_authorized_imports=["*"],
            executor_kwargs={"additional_functions": {"open": open}},
            **common,
        )
    return ToolCallingAgent(
        tools=[tool(one) for one in (python, bash, read_file, write_file)], **common
    )


def main():
    """Do the task that the argument describes."""
    given = json.loads(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        ended = _agent(given).run(given["text"], return_full_result=True)
        answer = "" if ended.output is None else str(ended.output)
        said = {"answer": answer, "claimed": ended.state == "success"}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what came of it
        said = {"claimed": False, "error": f"{type(error).__name__}: {error}"}
    out.write("\n" + json.dumps(said) + "\n")
    out.flush()
    os._exit(0)  # nothing that was started is waited for


if __name__ == "__main__":
    main()
