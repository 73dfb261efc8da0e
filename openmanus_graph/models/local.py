"""Finding a model server on this machine when nothing is configured."""

import asyncio
import http.client
import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import cast

USUAL_PORTS = (11434, 1234, 8000, 8080)
"""Ollama, LM Studio, vLLM, llama.cpp; the first that lists a chat model is taken."""

_NOT_FOR_CHAT = ("embed", "bge-", "e5-", "gte-", "minilm", "rerank", "whisper", "tts", "ocr")


async def find_local_server(
    ports: Sequence[int] = USUAL_PORTS, timeout_s: float = 1.0
) -> tuple[str, str] | None:
    """Ask all ports at once; return the base URL and the first chat model, or None."""
    asked = (asyncio.to_thread(_chat_model, port, timeout_s) for port in ports)
    for port, model in zip(ports, await asyncio.gather(*asked), strict=True):
        if model is not None:
            return f"http://127.0.0.1:{port}/v1", model
    return None


def _chat_model(port: int, timeout_s: float) -> str | None:
    # Proxy variables must not send a question about this machine elsewhere.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/v1/models", timeout=timeout_s) as answer:
            listed: object = json.load(answer)
    except (OSError, ValueError, http.client.HTTPException):
        return None
    for entry in _entries(listed):
        name = entry.get("id")
        if isinstance(name, str) and not any(part in name.lower() for part in _NOT_FOR_CHAT):
            return name
    return None


def _entries(listed: object) -> list[Mapping[str, object]]:
    data = cast("Mapping[str, object]", listed).get("data") if isinstance(listed, dict) else None
    entries = cast("list[object]", data) if isinstance(data, list) else []
    return [cast("Mapping[str, object]", entry) for entry in entries if isinstance(entry, dict)]
