"""Routes about usage: the page's view, and metrics for Prometheus."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from openmanus_graph.backends.persistence.backend import Row
from openmanus_graph.backends.persistence.threads import DEMO
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.service.accounts import current_user
from openmanus_graph.interfaces.service.usage import By, end_killed_runs, report, sums

router = APIRouter()
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@router.get("/app/api/usage")
async def show_usage(since: str = "30d", by: By = "day") -> dict[str, Any]:
    """Return the user's usage. An admin gets all users' sums, but no thread of another user."""
    user, database = current_user(), store.current().threads.database
    owner = None if user.role == "admin" and by != "thread" else user.name
    return await asyncio.to_thread(report, database, by, since, owner, user.name)


@router.get("/app/metrics")
async def show_metrics() -> PlainTextResponse:
    text = await asyncio.to_thread(metrics, store.current())
    return PlainTextResponse(text, media_type=PROMETHEUS)


def metrics(opened: store.Store) -> str:
    """Return the metrics of all processes of the database, and of this process. Blocks."""
    database, own, turns = opened.threads.database, psutil.Process(), opened.turns
    end_killed_runs(database)
    runs = database.run(
        "SELECT agent, status, COUNT(*) FROM run_usage"
        f" WHERE status <> 'running' AND trigger <> '{DEMO}' GROUP BY agent, status"
    )
    used = sums(database, "model")
    used.pop("", None)  # the runs
    for one in used.values():
        one["input_tokens"] -= one["cached_tokens"]
    kinds = ("input", "cached", "output")
    tokens = [(name, kind, one[f"{kind}_tokens"]) for name, one in used.items() for kind in kinds]
    dollars, calls, seconds = (
        [(model, one[name]) for model, one in used.items()]
        for name in ("cost_usd", "model_calls", "model_seconds")
    )
    waiting = sum(map(len, turns.waiting.values()))
    families: tuple[tuple[str, tuple[str, ...], Sequence[Row]], ...] = (
        ("openmanus_runs_total", ("agent", "status"), runs),
        ("openmanus_model_tokens_total", ("model", "kind"), tokens),
        ("openmanus_model_cost_dollars_total", ("model",), dollars),
        ("openmanus_model_calls_total", ("model",), calls),
        ("openmanus_model_call_seconds_total", ("model",), seconds),
        ("openmanus_runs_running", (), [(turns.running.total(),)]),
        ("openmanus_runs_waiting", (), [(waiting,)]),
        ("process_cpu_seconds_total", (), [(sum(own.cpu_times()[:2]),)]),
        ("process_resident_memory_bytes", (), [(own.memory_info().rss,)]),
        ("process_start_time_seconds", (), [(own.create_time(),)]),
    )
    return "".join(line for family in families for line in _lines(*family))


def _lines(name: str, labels: Sequence[str], rows: Sequence[Row]) -> Iterator[str]:
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
    for *values, number in rows:
        named = zip(labels, values, strict=True)
        text = ",".join(f'{label}="{value.translate(_ESCAPED)}"' for label, value in named)
        yield f"{name}{f'{{{text}}}' if text else ''} {number}\n"
