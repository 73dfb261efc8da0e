"""A shop with a database of its own, and tasks in it whose right end is known.

Nothing in the shop notices that it is told the same thing twice: two refunds are two refunds, as
they are where a customer was promised two.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool
from psycopg import AsyncConnection, Connection
from psycopg.types.json import Jsonb

TASKS = 114
CUSTOMERS, PRODUCTS, ORDERS = 200, 50, 500
_TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, address text NOT NULL, credit_cents int NOT NULL);
CREATE TABLE products (id int PRIMARY KEY, price_cents int NOT NULL, stock int NOT NULL);
CREATE TABLE orders (
    id int PRIMARY KEY, customer int NOT NULL, product int NOT NULL, pieces int NOT NULL,
    status text NOT NULL
);
CREATE TABLE journal (
    action text NOT NULL, given jsonb NOT NULL, call text NOT NULL, key text NOT NULL
);
INSERT INTO customers SELECT n, 'Street ' || n, 0 FROM generate_series(1, %(customers)s) n;
INSERT INTO products SELECT n, 100 * n + 99, 100 FROM generate_series(1, %(products)s) n;
INSERT INTO orders
    SELECT n, 1 + n %% %(customers)s, 1 + n %% %(products)s, 1 + n %% 3, 'delivered'
    FROM generate_series(1, %(orders)s) n;
"""
_EFFECTS: dict[str, tuple[str, ...]] = {
    "refund": (
        "UPDATE customers SET credit_cents = credit_cents + %(cents)s"
        " WHERE id = (SELECT customer FROM orders WHERE id = %(order)s)",
    ),
    "return_pieces": (
        "UPDATE orders SET pieces = pieces - %(pieces)s, status = 'returned' WHERE id = %(order)s",
        "UPDATE products SET stock = stock + %(pieces)s"
        " WHERE id = (SELECT product FROM orders WHERE id = %(order)s)",
    ),
    "place_order": (
        "INSERT INTO orders SELECT max(id) + 1, %(customer)s, %(product)s, %(pieces)s, 'placed'"
        " FROM orders",
        "UPDATE products SET stock = stock - %(pieces)s WHERE id = %(product)s",
    ),
    "change_address": (
        "UPDATE customers SET address = %(address)s WHERE id = %(customer)s",
    ),
}  # fmt: skip
_CallId: TypeAlias = Annotated[str, InjectedToolCallId]
_Key: TypeAlias = Annotated[str, InjectedToolArg]
Moment: TypeAlias = Callable[[str], None]
"""Is told each moment of a run, by name; it may be the last."""


@dataclass(frozen=True)
class Action:
    """One call of a tool."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a customer wants, and the calls that do it, reply by reply."""

    number: int
    replies: tuple[tuple[Action, ...], ...]

    @property
    def text(self) -> str:
        """The task in words."""
        return f"Do what customer {self.number} of today's list wants."

    def effects(self) -> list[Action]:
        """Return the calls that change something."""
        return [action for reply in self.replies for action in reply if action.tool in _EFFECTS]


def tasks() -> list[Task]:
    """Make the tasks, the same ones each time: two to five effects each, looks between them."""
    return [_task(number, random.Random(number)) for number in range(1, TASKS + 1)]


def _task(number: int, chance: random.Random) -> Task:
    order = chance.randint(1, ORDERS)
    customer, product = 1 + order % CUSTOMERS, chance.randint(1, PRODUCTS)
    cents = chance.choice([500, 1250])
    possible = [
        Action("refund", {"order": order, "cents": cents}),
        Action("return_pieces", {"order": order, "pieces": 1}),
        Action("place_order", {"customer": customer, "product": product, "pieces": 2}),
        Action("change_address", {"customer": customer, "address": f"New Street {number}"}),
    ]
    wanted = chance.sample(possible, chance.randint(2, 4))
    if chance.random() < 0.3:  # the same thing twice is wanted, too
        wanted.append(next((one for one in wanted if one.tool == "refund"), wanted[0]))
    look = Action("look_up_order", {"order": order})
    replies: list[tuple[Action, ...]] = [(look,)]
    while wanted:
        together = 2 if chance.random() < 0.25 else 1
        replies.append(tuple(wanted[:together]))
        wanted = wanted[together:]
    return Task(number, tuple(replies))


class Shop:
    """The shop in one database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self) -> "Shop":
        """Make its tables, and fill them."""
        sizes = {"customers": CUSTOMERS, "products": PRODUCTS, "orders": ORDERS}
        with Connection.connect(self.url) as connection:
            for statement in _TABLES.split(";")[:-1]:
                connection.execute(statement.encode(), sizes if "%" in statement else None)
        return self

    async def do(
        self, action: Action, call: str = "", key: str = "", before_commit: Any = None
    ) -> str:
        """Do something, and say what was done; the journal keeps the call's id and its key."""
        async with await AsyncConnection.connect(self.url) as connection:
            for statement in _EFFECTS[action.tool]:
                await connection.execute(statement.encode(), action.args)
            given = (action.tool, Jsonb(action.args), call, key)
            await connection.execute("INSERT INTO journal VALUES (%s, %s, %s, %s)", given)
            if before_commit:
                before_commit()
        return _said(action.tool, action.args)

    async def known(self, *, key: str = "", call: str = "") -> str | None:
        """Return what was done under a key, or by a call; None if nothing was."""
        async with await AsyncConnection.connect(self.url) as connection:
            found = await connection.execute(
                "SELECT action, given FROM journal WHERE key = %s OR call = %s",
                (key or None, call or None),
            )
            row = await found.fetchone()
        return _said(row[0], row[1]) if row else None

    async def look_up(self, order: int) -> str:
        """Describe an order."""
        async with await AsyncConnection.connect(self.url) as connection:
            found = await connection.execute("SELECT * FROM orders WHERE id = %s", (order,))
            return str(await found.fetchone())

    def rows(self) -> str:
        """Return all that it holds, in one order."""
        with Connection.connect(self.url) as connection:
            return repr([
                connection.execute(f"SELECT * FROM {table} ORDER BY id".encode()).fetchall()
                for table in ("customers", "products", "orders")
            ])  # fmt: skip

    def done(self) -> Counter[str]:
        """Count what was done."""
        with Connection.connect(self.url) as connection:
            found = connection.execute("SELECT action, given FROM journal").fetchall()
        return Counter(_said(action, given) for action, given in found)


def _said(action: str, given: dict[str, Any]) -> str:
    return f"{action} done: {sorted(given.items())}"


def shop_tools(shop: Shop, at: Moment) -> list[BaseTool]:
    """Make the shop's tools, for agents of any kind.

    `at` is told when each effect is about to be committed, and when it has been.
    """

    async def do(name: str, args: dict[str, Any], call: str, key: str) -> str:
        said = await shop.do(Action(name, args), call, key, lambda: at(f"begun {call}"))
        at(f"done {call}")
        return said

    async def refund(order: int, cents: int, call: _CallId, idempotency_key: _Key = "") -> str:
        """Credit cents of an order to its customer."""
        return await do("refund", {"order": order, "cents": cents}, call, idempotency_key)

    async def return_pieces(
        order: int, pieces: int, call: _CallId, idempotency_key: _Key = ""
    ) -> str:
        """Take pieces of an order back into the stock."""
        return await do("return_pieces", {"order": order, "pieces": pieces}, call, idempotency_key)

    async def place_order(
        customer: int, product: int, pieces: int, call: _CallId, idempotency_key: _Key = ""
    ) -> str:
        """Order pieces of a product for a customer."""
        args = {"customer": customer, "product": product, "pieces": pieces}
        return await do("place_order", args, call, idempotency_key)

    async def change_address(
        customer: int, address: str, call: _CallId, idempotency_key: _Key = ""
    ) -> str:
        """Change the address of a customer."""
        args = {"customer": customer, "address": address}
        return await do("change_address", args, call, idempotency_key)

    async def look_up_order(order: int) -> str:
        """Look an order up."""
        return await shop.look_up(order)

    async def known(args: dict[str, Any], key: str) -> str | None:
        return await shop.known(key=key)

    acting: list[Callable[..., Awaitable[str]]] = [
        refund, return_pieces, place_order, change_address,
    ]  # fmt: skip
    external = {"effect": "external", "reconcile": known}
    return [
        *(StructuredTool.from_function(coroutine=one, metadata=external) for one in acting),
        StructuredTool.from_function(coroutine=look_up_order, metadata={"effect": "read_only"}),
    ]
