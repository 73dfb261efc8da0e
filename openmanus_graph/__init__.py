"""OpenManus as LangGraph graphs: agents that get a task done with real tools.

Importing this package loads no heavy library. The public names, listed in `__init__.pyi`, are
loaded when they are used.

Folders import downwards only (`lint-imports`, by the contract in `pyproject.toml`):
interfaces, demo, graphs | testing | middleware, nodes, tools, planning, tool_calls, model_calls,
backends, runtime, config, safety, conversation, prompts, state, errors.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]  # it has no types
