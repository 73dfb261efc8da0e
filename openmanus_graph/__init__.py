"""OpenManus as LangGraph graphs: agents that get a task done with real tools.

Importing this package pulls in no heavy library: the public names, all of which stand in
`__init__.pyi`, are loaded when they are used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]  # it has no types
