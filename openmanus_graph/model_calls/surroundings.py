"""What every agent's system prompt says about where it works: the same in all steps of a run."""

import asyncio
from collections.abc import Collection, Iterator

from openmanus_graph.backends.models.build import prepare_model, sees_images
from openmanus_graph.backends.sandbox.libraries import usual_libraries
from openmanus_graph.prompts import render
from openmanus_graph.state.settings import Settings

_PYTHON_TOOLS = frozenset({"python_execute", "bash"})


async def surroundings(settings: Settings, tools: Collection[str], date: str) -> str:
    """Return the part of the system prompt that all agents share.

    Nothing in it changes within a run: providers then find the whole prompt in their cache.

    Args:
        settings: Of the run.
        tools: Names of the tools that the agent has.
        date: When the run began.
    """
    shown = await shows_pictures(settings)
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
        parts.append(await asyncio.to_thread(_python, settings))
    return "\n".join([*parts, render("text_from_outside")])


async def shows_pictures(settings: Settings) -> bool:
    """Say whether pictures reach a model that sees them."""
    if settings.vision is not None:
        return settings.vision.vision is not False
    return sees_images(await prepare_model(settings.main), settings.main)


def _limits(settings: Settings) -> Iterator[str]:
    yield f"{settings.max_steps} steps"
    yield f"${settings.max_cost_usd:g}"
    if settings.max_total_tokens is not None:
        yield f"{settings.max_total_tokens} tokens"
    if settings.timeout_s is not None:
        yield f"{settings.timeout_s:.0f} seconds"


def _python(settings: Settings) -> str:
    sandbox = settings.sandbox
    reachable = sandbox.network or sandbox.mode == "none"
    return render(
        "surroundings_python",
        libraries=", ".join(usual_libraries(sandbox)) or "the libraries of its image",
        network="reach the network" if reachable else "have no network: nothing can be installed",
    )
