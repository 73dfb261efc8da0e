"""What is believed of stored approvals: those that this user's processes wrote.

Whoever writes to a database writes checkpoints and the ledger, too. So each approval there, and
each answer that is read again, carries an HMAC made with this user's key, over its thread, kind and
value. Without a valid one it is none, and the call is asked about again.
"""

import asyncio
import hmac
import secrets
from collections.abc import Sequence
from typing import Literal

from langchain_core.runnables import RunnableConfig

from openmanus_graph.config.options_key import hmac_of, options_key

Kind = Literal["call", "value", "answer"]
_process_key = secrets.token_bytes(32)
"""Where no key can be kept: then approvals end with this process."""
UNBELIEVED = (
    "Stored approvals of this thread carry no valid signature of yours, so they do not count: you "
    "are asked again."
)


async def seal(config: RunnableConfig, kind: Kind, values: Sequence[str]) -> list[str]:
    """Return approvals as they are stored.

    Args:
        config: Of the node; it names the thread.
        kind: Of calls, of values, or a person's answer to a question.
        values: What was approved.
    """
    if not values:
        return []
    return await asyncio.to_thread(_sealed, _thread_of(config), kind, values)


async def believed(config: RunnableConfig, kind: Kind, stored: Sequence[str]) -> list[str]:
    """Return the approvals among the stored ones that this user's processes sealed.

    Args:
        config: As for `seal`.
        kind: As for `seal`.
        stored: What is stored; anybody may have written it.
    """
    values = [str(one).partition(" ")[2] for one in stored]
    sealed = await seal(config, kind, values)
    pairs = zip(stored, sealed, values, strict=True)
    return [
        value
        for given, right, value in pairs
        if hmac.compare_digest(str(given).encode(errors="replace"), right.encode(errors="replace"))
    ]


def _sealed(thread: str, kind: Kind, values: Sequence[str]) -> list[str]:
    key = options_key(make=True) or _process_key
    return [f"{hmac_of(key, [thread, kind, value])} {value}" for value in values]


def _thread_of(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id", ""))
