"""Tools for users' tests of graphs and tools, without a model, a key or a network.

Apps import it, as do the demo and the notebooks, which run without a model.
"""

from openmanus_graph.backends.persistence.bundles import load_bundle
from openmanus_graph.testing.chat_models import (
    RecordedChatModel,
    RecordedPlanModel,
    RecordedReply,
    Recording,
    RecordingError,
    ScriptedChatModel,
    ScriptExhaustedError,
    load_conversations,
    load_recording,
    recording_of,
    save_recording,
)
from openmanus_graph.testing.replays import Replayed, replay, tool_runtime, tool_session

__all__ = [
    "RecordedChatModel",
    "RecordedPlanModel",
    "RecordedReply",
    "Recording",
    "RecordingError",
    "Replayed",
    "ScriptExhaustedError",
    "ScriptedChatModel",
    "load_bundle",
    "load_conversations",
    "load_recording",
    "recording_of",
    "replay",
    "save_recording",
    "tool_runtime",
    "tool_session",
]
