"""What every agent's system prompt says about where it works: the same in all steps of a run."""

import asyncio
from collections.abc import Collection, Iterator
from functools import cache

from openmanus_graph.backends.sandbox.choose import backend_name, reaches_network
from openmanus_graph.backends.sandbox.libraries import usual_libraries
from openmanus_graph.model_calls.candidates import pictures_reach_a_model
from openmanus_graph.prompts import render
from openmanus_graph.state.settings import SandboxSettings, Settings

_PYTHON_TOOLS = frozenset({"python_execute", "bash"})


async def surroundings(settings: Settings, tools: Collection[str], date: str) -> str:
    """Return the part of the system prompt that all agents share.

    Nothing in it changes within a run: providers then find the whole prompt in their cache.

    Args:
        settings: Of the run.
        tools: Names of the tools that the agent has.
        date: When the run began.
    """
    shown = await pictures_reach_a_model(settings)
    parts = [
        render(
            "surroundings",
            workspace=str(settings.workspace),
            date=date,
            pictures="shown" if shown else "not shown",
            limits=" and ".join(_limits(settings)),
        )
    ]
    if not _PYTHON_TOOLS.isdisjoint(tools):
        parts.append(await asyncio.to_thread(_python, settings.sandbox))
        if settings.sandbox.mode == "ssh":
            parts.append(render("surroundings_elsewhere", host=settings.sandbox.ssh_host))
    return "\n".join([*parts, render("text_from_outside")])


def _limits(settings: Settings) -> Iterator[str]:
    yield f"{settings.max_steps} steps"
    yield f"${settings.max_cost_usd:g}"
    if settings.max_total_tokens is not None:
        yield f"{settings.max_total_tokens} tokens"
    if settings.timeout_s is not None:
        yield f"{settings.timeout_s:.0f} seconds"


@cache
def _python(sandbox: SandboxSettings) -> str:
    """Say what programs find. Blocks when first asked: a backend is tried, folders looked into."""
    reachable = reaches_network(backend_name(sandbox), sandbox)
    return render(
        "surroundings_python",
        libraries=", ".join(usual_libraries(sandbox)) or "the libraries of its image",
        network="reach the network" if reachable else "have no network: nothing can be installed",
    )
