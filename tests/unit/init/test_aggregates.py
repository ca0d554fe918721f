"""Grouping of tables into aggregates, as proposed and as requested."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.init.tables import by_name, column, key, table

from outbox_events.errors import ConfigurationError
from outbox_kit.init.aggregates import Node, parse, propose, skipped
from outbox_kit.init.catalog import Table

ORDERS = table("orders", "id customer_id", foreign=(key("customer_id", "shop.customer"),))
LINES = table("line", "order_id no", "order_id no", (key("order_id", "shop.orders", cascades=True),))
DISCOUNTS = table("discount", "order_id no seq", "order_id no seq", (key("order_id no", "shop.line", "order_id no"),))
CUSTOMERS = table("customer")
SHOP = by_name(CUSTOMERS, DISCOUNTS, LINES, ORDERS)


def shape(node: Node) -> object:
    """Return the name of a node's table, or a mapping from it to the shapes of its parts."""
    return {node.table.name: [shape(child) for child in node.children]} if node.children else node.table.name


def test_proposes_each_table_with_its_parts() -> None:
    assert [entry.option for entry in propose(SHOP)] == [
        "customer=shop.customer",
        "orders=shop.orders,shop.line,shop.discount",
    ]


@pytest.mark.parametrize(
    "tables",
    [
        SHOP,
        by_name(table("Item"), table("item"), table("transaction"), table("größe"), table("grüße")),
        by_name(table("x" * 50), table("x" * 50 + "y")),
    ],
)
def test_every_proposal_can_be_requested(tables: dict[str, Table]) -> None:
    proposed = propose(tables)
    assert len(proposed) > 1
    assert parse([entry.option for entry in proposed], tables) == proposed


def test_nests_parts_in_any_order_of_the_option() -> None:
    (aggregate,) = parse(["order=shop.orders,shop.discount,shop.line"], SHOP)
    assert shape(aggregate.root) == {"orders": [{"line": ["discount"]}]}


@pytest.mark.parametrize(
    ("part", "is_part"),
    [
        (table("part", "id root_id", "id", (key("root_id", "shop.root", cascades=True),)), True),
        (table("part", "id root_id", "id", (key("root_id", "shop.root"),)), False),
        (table("part", "id root_id", "id", (key("root_id", "shop.root", cascades=True),), nullable="root_id"), False),
        (table("part", "root_id", "root_id", (key("root_id", "shop.root"),)), True),
        (table("part", "id", "id", (key("id", "shop.part", cascades=True),)), False),
    ],
)
def test_recognizes_parts(part: Table, is_part: bool) -> None:
    proposed = propose(by_name(table("root"), part))
    assert len(proposed) == (1 if is_part else 2)


def test_a_table_that_could_be_part_of_two_tables_is_proposed_alone() -> None:
    foreign = (key("a b", "shop.a", name="x"), key("a b", "shop.b", name="y"))
    proposed = propose(by_name(table("a"), table("b"), table("link", "a b", "a b", foreign)))
    assert [entry.name for entry in proposed] == ["a", "b", "link"]


def test_tables_that_reference_each_other_are_proposed() -> None:
    a = table("a", foreign=(key("id", "shop.b"),))
    b = table("b", foreign=(key("id", "shop.a"),))
    assert {entry.name for entry in propose(by_name(a, b))} == {"a", "b"}


def test_a_proposal_does_not_need_the_name_of_a_type() -> None:
    tables = by_name(table("visit"), table("room"))
    assert [entry.name for entry in propose(tables, {"shop.visit_state", "audit.room_state"})] == ["visit_2", "room"]


def test_names_are_unique() -> None:
    other = Table("audit", "Orders", ORDERS.columns, ORDERS.keys)
    names = [entry.name for entry in propose({**by_name(table("orders")), other.full_name: other})]
    assert sorted(names) == ["audit_orders", "shop_orders"]


def test_reports_tables_that_cannot_be_aggregates() -> None:
    tables = by_name(table("log", "at", ""), table("odd name"), table("payload", "payload", "payload"), CUSTOMERS)
    tables |= by_name(
        replace(table("lines"), columns=(column("id"), column("a\nb"))),
        replace(table("times"), columns=(column("id", "timestamptz"),)),
    )
    assert set(skipped(tables)) == {"shop.log", "shop.odd name", "shop.payload", "shop.lines", "shop.times"}
    assert [entry.name for entry in propose(tables)] == ["customer"]


def test_omits_tables_of_migration_tools() -> None:
    tables = by_name(table("alembic_version"), table("outbox_event"), table("flyway_schema_history"))
    assert propose(tables) == []
    assert skipped(tables) == {}


def test_a_row_with_the_key_of_its_parent_is_single() -> None:
    tables = by_name(table("root"), table("detail", "root_id", "root_id", (key("root_id", "shop.root"),)))
    (aggregate,) = parse(["root=shop.root,shop.detail"], tables)
    assert aggregate.root.children[0].is_single
    (order,) = parse(["order=shop.orders,shop.line"], SHOP)
    assert not order.root.children[0].is_single


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["shop.orders"], "no valid name"),
        (["Order=shop.orders"], "no valid name"),
        (["transaction=shop.orders"], "no valid name"),
        (["order=shop.orderz"], "no table 'shop.orderz'"),
        (["order=shop.orders", "order=shop.line"], "given twice"),
        (["order=shop.orders,shop.customer"], "shop.customer has no foreign key"),
        (["order=shop.orders,shop.discount"], "shop.discount has no foreign key"),
        (["order=shop.orders,shop.line,shop.line"], "given twice"),
        (["event=shop.outbox_event"], "is a table of outbox-kit"),
        (["log=shop.log"], "no primary key"),
        (["root=shop.root,shop.both"], "by a_fk (a) and b_fk (b)"),
        (["root=shop.root,shop.x,shop.y"], "lead from shop.x, shop.y to shop.root"),
    ],
)
def test_rejects_aggregates_that_it_cannot_build(options: list[str], problem: str) -> None:
    both = table("both", "id a b", foreign=(key("a", "shop.root", name="a_fk"), key("b", "shop.root", name="b_fk")))
    x = table("x", foreign=(key("id", "shop.y"),))
    y = table("y", foreign=(key("id", "shop.x"),))
    tables = {**SHOP, **by_name(table("log", "at", ""), table("outbox_event"), table("root"), both, x, y)}
    with pytest.raises(ConfigurationError) as caught:
        parse(options, tables)
    assert problem in caught.value.message
    assert caught.value.hint
