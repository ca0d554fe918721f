"""Privileges that are missing in given facts. tests/integration/deployment/test_database_script.py reads the facts."""

from __future__ import annotations

from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.postgres.privileges import STATEMENTS, Access, missing_privileges

SERVER = {"wal_level": "logical", "database": "library", "has_slot": False, "has_publication": False}
SERVER |= {f"{used}{name}": 1 for used in ("", "used_") for name in ("max_replication_slots", "max_wal_senders")}
FREE = {"used_max_replication_slots": 0, "used_max_wal_senders": 0}
OUTBOX, SCHEMA = "public.outbox_event", "schema public"
PRIVILEGED = {("owner", ""): set(STATEMENTS), ("reader", ""): set(STATEMENTS)}
ALL = {"usage", "usage with grant option", "create", "select", "insert", "update", "delete", "ownership"}


def statements(
    pipeline: Pipeline, environment: Environment, granted: dict[tuple[str, str], set[str]], **server: object
) -> list[tuple[str, str]]:
    """Return (needed_by, statement) of the missing privileges."""
    access = Access({**SERVER, **FREE, **server}, granted, ("shop.address",))
    return [(item.needed_by, item.statement) for item in missing_privileges(pipeline, environment, access)]


def test_nothing_is_missing_for_an_empty_schema_of_the_owner(library: Pipeline, environment: Environment) -> None:
    assert statements(library, environment, {**PRIVILEGED, ("owner", SCHEMA): ALL}) == []


def test_lists_settings_and_roles_before_their_privileges(library: Pipeline, environment: Environment) -> None:
    full = {"used_max_replication_slots": 1, "used_max_wal_senders": 1, "wal_level": "replica"}
    assert statements(library, environment, {("owner", ""): {"login"}}, **full) == [
        ("apply", "alter system set wal_level = logical"),
        ("apply", "alter system set max_replication_slots = 2"),
        ("apply", "alter system set max_wal_senders = 2"),
        ("apply", 'create role "reader"'),
        ("apply", 'grant execute on function pg_control_system() to "owner"'),
        ("verify", 'grant pg_read_all_stats to "owner"'),
        ("apply", 'alter role "owner" replication'),
        ("apply", 'grant create on database "library" to "owner"'),
        (
            "the connector",
            'alter role "reader" login; alter role "reader" replication; '
            'grant connect on database "library" to "reader"',
        ),
    ]


def test_lists_privileges_on_existing_objects(library: Pipeline, environment: Environment) -> None:
    progress, relay, schemas = "public.outbox_backfill", "public.outbox_relay", ("schema library", "schema shop")
    objects = (SCHEMA, OUTBOX, progress, relay, "library.author", "shop.address", *schemas)
    granted = {**PRIVILEGED, **{("owner", name): set[str]() for name in objects}}
    assert statements(library, environment, granted, has_slot=True, has_publication=True) == [
        ("apply", 'grant usage on schema "public" to "owner"'),
        ("apply", 'alter table "public"."outbox_event" owner to "owner"'),
        ("apply", 'grant usage on schema "public" to "reader"'),
        ("apply", 'grant select on "public"."outbox_event" to "reader"'),
        ("apply", 'grant select on "public"."outbox_relay" to "owner"'),
        ("backfill", 'grant select, insert, update, delete on "public"."outbox_backfill" to "owner"'),
        ("backfill", 'grant usage on schema "shop" to "owner"'),
        ("backfill", 'grant select on "shop"."address" to "owner"'),
        ("backfill", 'grant usage on schema "library" to "owner"'),
        ("backfill", 'grant select, update on "library"."author" to "owner"'),
    ]


def test_a_deployed_outbox_needs_ownership_only_for_a_recovery(library: Pipeline, environment: Environment) -> None:
    granted = {**PRIVILEGED, ("owner", SCHEMA): ALL, ("owner", OUTBOX): {"select"}, ("reader", OUTBOX): {"select"}}
    granted["reader", SCHEMA] = {"usage"}
    assert statements(library, environment, granted, has_slot=True, has_publication=True) == [
        ("recover", 'alter table "public"."outbox_event" owner to "owner"')
    ]


def test_messages_need_no_table(library: Pipeline, environment: Environment) -> None:
    source = library.source.model_copy(update={"message_prefix": "outbox"})
    messages = library.model_copy(update={"source": source})
    assert statements(messages, environment, {**PRIVILEGED, ("owner", SCHEMA): set(), ("owner", OUTBOX): set()}) == []
