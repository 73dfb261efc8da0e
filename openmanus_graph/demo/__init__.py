"""The data and recordings of `openmanus demo`, and its recorded model.

`penguins-raw.csv` holds size measurements of penguins of the Palmer Archipelago, collected by
Kristen Gorman and the Palmer Station LTER, published under CC0. `penguins.json` holds a model's
replies for the task, recorded for the demo; `penguins-plan.json` holds those for the task done by
a plan, one conversation for each step.

The folder `evals` holds ten tasks with checks, which `openmanus eval --shipped` does:
`suite.jsonl` holds the tasks, `files` their files, `judges.py` the functions of their `python:`
checks, `recording.json` one conversation for each task and each step of a plan.
"""

import importlib.util
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from typing_extensions import override

from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.testing.chat_models import (
    Conversations,
    RecordedPlanModel,
    load_conversations,
    load_recording,
)

DATA = "penguins-raw.csv"
TASK = (
    f"Clean the penguin measurements in {DATA}, find out how the species differ in size, "
    "draw a chart and write a short report."
)
PLAN_TASK = (
    f"Clean the penguin measurements in {DATA}, find out how the species differ in size "
    "and where and when they were measured, draw charts and write a report."
)
MODEL, PLAN_MODEL, EVALS_MODEL = "penguins", "penguins-plan", "evals"
SUITE = "evals/suite.jsonl"
"""The tasks that `EVALS_MODEL` does, with their checks."""
_NEEDED = {
    MODEL: ("pandas", "matplotlib"),
    PLAN_MODEL: ("pandas", "altair", "vl_convert"),
    EVALS_MODEL: (),
}


class DemoModel(RecordedPlanModel):
    """Plays a recording for any number of conversations: a server keeps one model for all."""

    def __init__(self, conversations: Conversations, **fields: Any) -> None:
        super().__init__(conversations, **fields)

    @override
    def _next(self, messages: list[BaseMessage], options: dict[str, Any]) -> AIMessage:
        self._requests.clear()
        self._options.clear()
        return super()._next(messages, options)


def recorded_model(model: str, **fields: Any) -> BaseChatModel:
    """Return the model of a recording, `demo:NAME` as a model's setting.

    Raises:
        ConfigError: The recording does not exist.
    """
    if model not in _NEEDED:
        raise ConfigError(f"There is no recording {model!r}. Available: {', '.join(_NEEDED)}.")
    if model == PLAN_MODEL:
        fields = {
            "profile": {"image_inputs": True},
            **fields,
        }  # it could see charts
    with demo_folder() as folder:
        if model == MODEL:
            return DemoModel({DATA: load_recording(folder / f"{model}.json")}, **fields)
        name = "evals/recording.json" if model == EVALS_MODEL else f"{model}.json"
        return DemoModel(load_conversations(folder / name), **fields)


def demo_folder() -> AbstractContextManager[Path]:
    """Return the folder with the data and the recordings."""
    return resources.as_file(resources.files("openmanus_graph.demo"))


def require_packages(model: str = MODEL) -> None:
    """Check that a demo's packages are installed. ConfigError says how to install them."""
    missing = [name for name in _NEEDED[model] if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"The demo needs the extra `data` ({' and '.join(missing)} missing). "
            f"{install_extra('data')}"
        )
