"""The planning graph: makes a plan, runs its steps side by side, checks them, and replans."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import default_executors, describe_agent
from openmanus_graph.graphs.loop import served
from openmanus_graph.nodes import check_step, create_plan, schedule
from openmanus_graph.nodes.stuck_check import route_after_terminate
from openmanus_graph.planning import executor_run
from openmanus_graph.planning.flow import next_node
from openmanus_graph.runtime.session_keeper import GraphRouter, SessionKeeper, graph_node
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusInput, ManusOutput
from openmanus_graph.state.planning import PlanningState, WorkerInput, WorkerState

PlanningGraph = CompiledStateGraph[PlanningState, Context, ManusInput, ManusOutput]
WorkerGraph = CompiledStateGraph[WorkerState, Context, WorkerInput, WorkerState]


def build_planning_graph(
    *,
    executors: executor_run.Executors | None = None,
    checkpointer: BaseCheckpointSaver[str] | None = None,
    store: BaseStore | None = None,
    name: str = "planning",
) -> PlanningGraph:
    """Build the flow. Cheap, without any I/O; each run's settings come with its `Context`.

    Args:
        executors: Graphs with `messages` in their state, by name. The model and `[NAME]` tags
            choose among them; the first does the rest. A single graph or a list works as well.
            By default the known agents.
        checkpointer: Keeps threads, and with them plans, the ledger and resuming.
        store: LangGraph's long-term store, handed to the executors.
        name: Of the compiled graph.

    Raises:
        ConfigError: Something is not an executor.
    """
    executor_set = executor_run.collect_executors(
        default_executors() if executors is None else executors, describe_agent
    )
    builder = StateGraph(
        PlanningState,
        context_schema=Context,
        input_schema=ManusInput,
        output_schema=ManusOutput,
    )
    flow = schedule.Flow()
    nodes: dict[str, Any] = {
        "create_plan": partial(create_plan.create_plan, executors=executor_set),
        "approve_plan": partial(create_plan.approve_plan, executors=executor_set),
        "schedule": schedule.schedule,
        "run_step": worker_node(worker_graph(executor_set), flow),
        "review_step": check_step.review_step,
        "finalize": check_step.finalize,
    }
    routes: dict[str, tuple[Any, list[str]]] = {
        "create_plan": (
            create_plan.route_after_create_plan,
            ["create_plan", "approve_plan", "schedule", "finalize"],
        ),
        "approve_plan": (
            create_plan.route_after_approve_plan,
            ["create_plan", "schedule", "finalize"],
        ),
        "schedule": (
            schedule.route_after_schedule,
            ["run_step", "create_plan", "approve_plan", "finalize"],
        ),
        "review_step": (check_step.route_after_review_step, ["schedule", "finalize"]),
    }
    _add(builder, nodes, routes)
    builder.add_edge(START, "create_plan")
    builder.add_edge("run_step", "review_step")
    builder.add_conditional_edges(
        "finalize", GraphRouter(route_after_terminate), {"new_message": "create_plan", "end": END}
    )

    compiled = builder.compile(checkpointer=checkpointer, store=store, name=name)
    flow.graph = compiled
    return compiled.with_config(callbacks=[SessionKeeper()])


def _add(
    builder: Any, nodes: Mapping[str, Any], routes: Mapping[str, tuple[Any, list[str]]]
) -> None:
    """Add nodes, and after each the route that returns one of its targets."""
    for name, node in nodes.items():
        builder.add_node(name, graph_node(node))
    for name, (route, targets) in routes.items():
        builder.add_conditional_edges(name, GraphRouter(route), targets)


def worker_graph(executor_set: executor_run.ExecutorSet) -> WorkerGraph:
    """Build what `run_step` runs: a worker that does step after step, each by its executor."""
    builder = StateGraph(WorkerState, context_schema=Context, input_schema=WorkerInput)

    async def route_to_step(state: WorkerState) -> str:
        return next_node(state.get("step_run"), executor_set.names)

    async def route_after_next_step(state: WorkerState) -> str:
        return next_node(state["step_run"], executor_set.names) if state["step_run"] else END

    executors: dict[str, Any] = {
        name: executor_node(one) for name, one in executor_set.executors.items()
    }
    nodes: dict[str, Any] = {
        "check_step": check_step.check_step,
        "judge_check": check_step.judge_check,
        "replan_step": partial(check_step.replan_step, executors=executor_set),
        "next_step": schedule.next_step,
        "missing_executor": partial(schedule.missing_executor, executors=executor_set),
    }
    if taken := executors.keys() & nodes:
        raise ConfigError(
            f"An executor cannot have the name {min(taken)!r}, because a node of the plan graph "
            "has it. Choose another name."
        )
    begin = [*executors, "missing_executor", "check_step", "judge_check", "replan_step"]
    after_check, after_replan = check_step.route_after_check, check_step.route_after_replan_step
    routes: dict[str, tuple[Any, list[str]]] = {
        START: (route_to_step, [*begin, "next_step"]),
        "check_step": (after_check, ["judge_check", "replan_step", "next_step"]),
        "judge_check": (after_check, ["check_step", "replan_step", "next_step"]),
        "replan_step": (after_replan, ["replan_step", "next_step"]),
        "next_step": (route_after_next_step, [*begin, END]),
    }
    _add(builder, executors | nodes, routes)
    for name in (*executors, "missing_executor"):
        builder.add_edge(name, "check_step")
    return builder.compile(name="run_step")


def worker_node(
    worker: WorkerGraph, flow: schedule.Flow
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Make the node of the workers. LangGraph finds and draws the graph in its closure."""

    async def do_steps(given: WorkerInput, runtime: Runtime[Context]) -> dict[str, Any]:
        return await schedule.run_step(given, runtime, worker=worker, planning=flow)

    return do_steps


def executor_node(executor: executor_run.Executor) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Make the node of one executor. LangGraph finds and draws the graph in its closure."""

    async def do_step(state: WorkerState, runtime: Runtime[Context]) -> dict[str, Any]:
        return await schedule.execute_step(state, runtime, executor=executor)

    return do_step


graph = served(build_planning_graph(), "title", "order")
