"""smolagents in the zoo: reads threads as lines of JSON, and writes what came of each.

Runs in an environment of its own, which `bench.zoo` makes.
"""

# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import base64
import io
import json
import signal
import sys

from PIL import Image
from smolagents import LogLevel, OpenAIModel, Tool, ToolCallingAgent

VALUES = {"alpha": "A-7193", "beta": "B-8204", "gamma": "G-9315", "delta": "D-6426"}
TIMEOUT_S = 60


class LookUp(Tool):
    """The tool of the others, as far as this product's own descriptions of tools reach."""

    name = "look_up"
    description = "Look a value up."
    inputs = {  # as the product has it
        "key": {
            "type": "string", "description": "One word.", "pattern": "^\\w+", "maxLength": 4000,
        },
        "near": {
            "type": "object", "description": "Where to look first.", "nullable": True,
            "properties": {"shelf": {"type": "string", "pattern": "[a-z]|\\d", "maxLength": 4000},
                           "floor": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 1}},
        },
        "depth": {
            "type": "integer", "description": "How far.", "exclusiveMinimum": 0, "nullable": True,
        },
    }  # fmt: skip
    output_type = "string"

    def forward(self, key, near=None, depth=None):
        """Look a value up."""
        return f"{key} is {VALUES[key]}." if key in VALUES else f"There is no {key}."


def _model(given):
    return OpenAIModel(
        given["model"], api_base=given["base_url"], api_key="none",
        client_kwargs={"max_retries": 1}, **given["options"],
    )  # fmt: skip


def _thread(turns):
    agent, answer = None, ""
    for turn in turns:
        if agent is None:
            agent = ToolCallingAgent(
                tools=[LookUp()], model=_model(turn), max_steps=12, verbosity_level=LogLevel.OFF
            )
            first = True
        agent.model = _model(turn)
        images = [Image.open(io.BytesIO(base64.b64decode(one))) for one in turn["pictures"]]
        answer = agent.run(turn["task"], reset=first, images=images or None)
        first = False
    return str(answer)


def _too_long(*_):
    raise TimeoutError("too long")


def main():
    """Serve until the input ends."""
    out, sys.stdout = sys.stdout, sys.stderr
    signal.signal(signal.SIGALRM, _too_long)
    for line in sys.stdin:
        signal.alarm(TIMEOUT_S)
        try:
            said = {"answer": _thread(json.loads(line))}
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what came of it
            said = {"error": f"{type(error).__name__}: {error}"}
        signal.alarm(0)
        out.write(json.dumps(said) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
