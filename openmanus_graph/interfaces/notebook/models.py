"""The model of a notebook: a recording, unless a real one is configured."""

import json
import os
from importlib import resources

from openmanus_graph.errors import ConfigError
from openmanus_graph.testing import (
    RecordedChatModel,
    RecordedPlanModel,
    load_conversations,
    load_recording,
)

OWN_MODEL = ("OPENMANUS_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL")
"""A notebook uses the reader's own model as soon as one of these is set."""


def recorded_model(name: str) -> RecordedChatModel | RecordedPlanModel | None:
    """Return the recorded model of a notebook, or None where a real one is configured.

    None as `Context.model` means the model of the environment and the configuration files.

    Args:
        name: Of the recording: `first_run`.

    Raises:
        ConfigError: There is no such recording.
    """
    if any(os.environ.get(variable) for variable in OWN_MODEL):
        return None
    folder = resources.files("openmanus_graph.interfaces.notebook") / "recordings"
    with resources.as_file(folder) as recordings:
        path = recordings / f"{name}.json"
        if not path.is_file():
            known = ", ".join(sorted(found.stem for found in recordings.glob("*.json")))
            raise ConfigError(f"There is no recording {name!r}. There are: {known}.")
        if "conversations" in json.loads(path.read_text("utf-8")):
            # Charts go to the model as to one that sees them.
            return RecordedPlanModel(load_conversations(path), profile={"image_inputs": True})
        return RecordedChatModel(load_recording(path))
