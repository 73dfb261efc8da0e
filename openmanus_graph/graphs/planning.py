"""The planning graph: makes a plan, runs its steps side by side, checks them, and replans."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore

from openmanus_graph.graphs.catalog import default_executors, describe_agent
from openmanus_graph.nodes import check_step, create_plan, schedule
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
    builder.add_node(
        "create_plan", graph_node(partial(create_plan.create_plan, executors=executor_set))
    )
    builder.add_node(
        "approve_plan", graph_node(partial(create_plan.approve_plan, executors=executor_set))
    )
    builder.add_node("schedule", graph_node(schedule.schedule))
    flow = schedule.Flow()
    builder.add_node("run_step", graph_node(worker_node(worker_graph(executor_set), flow)))
    builder.add_node("review_step", graph_node(check_step.review_step))
    builder.add_node("finalize", graph_node(check_step.finalize))

    builder.add_edge(START, "create_plan")
    builder.add_conditional_edges(
        "create_plan",
        GraphRouter(create_plan.route_after_create_plan),
        ["create_plan", "approve_plan", "schedule", "finalize"],
    )
    builder.add_conditional_edges(
        "approve_plan",
        GraphRouter(create_plan.route_after_approve_plan),
        ["create_plan", "schedule", "finalize"],
    )
    builder.add_conditional_edges(
        "schedule",
        GraphRouter(schedule.route_after_schedule),
        ["run_step", "create_plan", "approve_plan", "finalize"],
    )
    builder.add_edge("run_step", "review_step")
    builder.add_conditional_edges(
        "review_step", GraphRouter(check_step.route_after_review_step), ["schedule", "finalize"]
    )
    builder.add_edge("finalize", END)

    compiled = builder.compile(checkpointer=checkpointer, store=store, name=name)
    flow.graph = compiled
    return compiled.with_config(callbacks=[SessionKeeper()])


def worker_graph(executor_set: executor_run.ExecutorSet) -> WorkerGraph:
    """Build what `run_step` runs: a worker that does step after step, each by its executor."""
    builder = StateGraph(WorkerState, context_schema=Context, input_schema=WorkerInput)
    for name, executor in executor_set.executors.items():
        builder.add_node(name, graph_node(executor_node(executor)))
        builder.add_edge(name, "check_step")
    builder.add_node("check_step", graph_node(check_step.check_step))
    builder.add_node("judge_check", graph_node(check_step.judge_check))
    builder.add_node(
        "replan_step", graph_node(partial(check_step.replan_step, executors=executor_set))
    )
    builder.add_node("next_step", graph_node(schedule.next_step))
    builder.add_node(
        "missing_executor", graph_node(partial(schedule.missing_executor, executors=executor_set))
    )
    builder.add_edge("missing_executor", "check_step")

    async def route_to_step(state: WorkerState) -> str:
        return next_node(state.get("step_run"), executor_set.names)

    async def route_after_next_step(state: WorkerState) -> str:
        return next_node(state["step_run"], executor_set.names) if state["step_run"] else END

    begin = [*executor_set.names, "missing_executor", "check_step", "judge_check", "replan_step"]
    builder.add_conditional_edges(START, GraphRouter(route_to_step), [*begin, "next_step"])
    after_check = ["judge_check", "replan_step", "next_step"]
    builder.add_conditional_edges(
        "check_step", GraphRouter(check_step.route_after_check), after_check
    )
    after_judge = ["check_step", "replan_step", "next_step"]
    builder.add_conditional_edges(
        "judge_check", GraphRouter(check_step.route_after_check), after_judge
    )
    after_replan = ["replan_step", "next_step"]
    builder.add_conditional_edges(
        "replan_step", GraphRouter(check_step.route_after_replan_step), after_replan
    )
    builder.add_conditional_edges("next_step", GraphRouter(route_after_next_step), [*begin, END])
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


graph = build_planning_graph()
