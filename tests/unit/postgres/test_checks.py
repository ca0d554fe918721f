"""Checks of the source database."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.remedies import commands_of
from tests.unit.postgres.samples import DEPLOYED, DETAILS, EMPTY, LOCKED, PUBLICATION, SLOT, by_tenant

from outbox_kit.pipeline import Environment, Pipeline
from outbox_kit.postgres import checks, slot_checks
from outbox_kit.postgres.checks import DatabaseState
from outbox_kit.postgres.ddl import publication_mark
from outbox_kit.postgres.other_tables import OtherTable
from outbox_kit.postgres.role_limits import DAY_S, RoleLimits, parse_milliseconds
from outbox_kit.postgres.state import COLUMN_TYPES
from outbox_kit.postgres.triggers_and_rules import TriggersAndRules
from outbox_kit.results.checks import Check, Severity, Status, evaluate

RULES = [*checks.RULES, *slot_checks.RULES]
IDS = [rule.id for rule in RULES]
ROLE = {"can_login": True, "can_replicate": True, "can_read": True}
USAGE = {"slots": 1, "senders": 1, "prepared_ages_s": {}}
SETTINGS = DETAILS.settings
LIMITS = DETAILS.role_limits
MB = 2**20
PUBLISHED_COLUMNS = [name for name in COLUMN_TYPES if name not in ("headers", "payload")]


@pytest.fixture
def state(library: Pipeline, environment: Environment) -> DatabaseState:
    return DatabaseState(library, environment, LOCKED, DEPLOYED, DETAILS)


def run(state: DatabaseState) -> dict[str, Check]:
    return {check.id: check for check in evaluate(RULES, state)}


def failing(state: DatabaseState) -> dict[str, str]:
    return {check.id: check.seen for check in run(state).values() if check.status in (Status.FAIL, Status.WARN)}


def test_passes_for_a_deployed_database(state: DatabaseState) -> None:
    actual = run(state)
    assert {name: check.seen for name, check in actual.items() if check.status is not Status.PASS} == {}
    assert all(check.seen and check.expected and not check.remedy for check in actual.values())


@dataclass(frozen=True)
class Case:
    """One fault and the one check that reports it."""

    id: str
    seen: str
    actual: dict[str, Any] = field(default_factory=dict)
    additional: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("postgres.primary", "a standby", {"is_standby": True}),
    Case("postgres.identity", "system identifier 7302, timeline 1", {"system_identifier": "7302"}),
    Case("postgres.identity", "system identifier 7301, timeline 2", {"timeline": 2}),
    Case("postgres.wal-level", "replica", {"wal_level": "replica"}),
    Case("postgres.wal-level", "another value after the next restart of the server", {}, {"wal_level_changes": True}),
    Case(
        "postgres.connector-role",
        "no role reader",
        {"role": None},
        {"can_emit": False, "role_limits": RoleLimits()},
    ),
    Case(
        "postgres.connector-role",
        "reader lacks usage on the schema",
        {"role": {**ROLE, "can_read": False}},
        {"role_limits": replace(LIMITS, can_use_schema=False)},
    ),
    Case(
        "postgres.connector-role",
        "reader lacks select on the table",
        {"role": {**ROLE, "can_read": False}},
        {"role_limits": replace(LIMITS, can_select=False)},
    ),
    Case(
        "postgres.connector-role",
        "reader lacks connect on the database",
        {},
        {"role_limits": replace(LIMITS, can_connect=False)},
    ),
    Case(
        "postgres.connector-role",
        "the password of reader expired 2.0 days ago (VALID UNTIL)",
        {},
        {"role_limits": replace(LIMITS, seconds_to_expiry=-2 * DAY_S)},
    ),
    Case(
        "postgres.connector-role",
        "the password of reader expires in 3.0 days (VALID UNTIL)",
        {},
        {"role_limits": replace(LIMITS, seconds_to_expiry=3 * DAY_S)},
    ),
    Case(
        "postgres.connector-role",
        "reader uses 3 of 3 connections (CONNECTION LIMIT)",
        {},
        {"role_limits": replace(LIMITS, connection_limit=3, connections=3)},
    ),
    Case(
        "postgres.connector-role",
        "statement_timeout of reader is 5s; idle_session_timeout of reader is 1min",
        {},
        {"role_limits": replace(LIMITS, settings={"idle_session_timeout": "1min", "statement_timeout": "5s"})},
    ),
    Case(
        "postgres.triggers",
        "nulls (function app.nulls)",
        {},
        {"hooks": TriggersAndRules(triggers=("nulls (function app.nulls)",))},
    ),
    Case("postgres.clock", "the database server is 3600 s ahead of this machine", {}, {"clock_skew_s": 3600.0}),
    Case("postgres.clock", "the database server is 31 s behind this machine", {}, {"clock_skew_s": -31.2}),
    Case("postgres.rules", "moves", {}, {"hooks": TriggersAndRules(rules=("moves",))}),
    Case(
        "postgres.row-security",
        "row security applies to owner; policies: tenant",
        {},
        {"hooks": TriggersAndRules(policies=("tenant",), hides_rows=True)},
    ),
    Case("postgres.connector-role", "reader lacks replication", {"role": {**ROLE, "can_replicate": False}}),
    Case("postgres.connector-role", "reader lacks execute pg_logical_emit_message", {}, {"can_emit": False}),
    Case("postgres.table", "id is text, not uuid", {"columns": {**COLUMN_TYPES, "id": "text"}}),
    Case("postgres.table-identity", "oid 16401", {"table_oid": 16401}),
    Case(
        "postgres.other-tables",
        "tenant.outbox_event (another schema)",
        {},
        {"other_tables": (OtherTable("tenant", "outbox_event"), OtherTable("x", "outbox_event", has_rows=None))},
    ),
    Case(
        "postgres.other-tables",
        'public.late (inherits from "public"."outbox_event")',
        {},
        {"other_tables": (OtherTable("public", "late", ('"public"."outbox_event"',)),)},
    ),
    Case("postgres.not-null", "nullable: event_type", {}, {"nullable_columns": ["event_type", "payload", "seq"]}),
    Case("postgres.key-not-empty", "no check on aggregate_id", {}, {"check_constraints": []}),
    Case("postgres.row-sequence", "the sequence is behind the rows", {}, {"sequence_repair": "select setval('s', 9)"}),
    Case(
        "postgres.partition-field",
        "book: 3 keys with several values",
        {},
        {"moved_key_counts": {"author": 0, "book": 3}},
    ),
    Case(
        "postgres.prepared-transactions",
        "2 prepared transactions, maximum age 3601 s",
        {},
        {"usage": {**USAGE, "prepared_ages_s": {"forgotten": 3601, "new": 1}}},
    ),
    Case(
        "postgres.prepared-transactions",
        "max_prepared_transactions is 0, but the slot is two-phase",
        {"slot": replace(SLOT, two_phase=True)},
    ),
    Case("postgres.free-slots", "10 of 10 in use", {}, {"usage": {**USAGE, "slots": 10}}),
    Case("postgres.free-wal-senders", "12 of 10 in use", {}, {"usage": {**USAGE, "senders": 12}}),
    Case(
        "postgres.idle-slot-timeout",
        "3600 s",
        {},
        {"settings": {**SETTINGS, "idle_replication_slot_timeout": 3600}},
    ),
    Case(
        "postgres.publication",
        "insert, delete of public.outbox_event, with publish_via_partition_root = true",
        {"publication": {**PUBLICATION, "pubdelete": True}},
    ),
    Case(
        "postgres.publication",
        "insert of public.outbox_event, with publish_via_partition_root = false",
        {"publication": {**PUBLICATION, "pubviaroot": False}},
    ),
    Case(
        "postgres.publication",
        "insert of public.a, public.outbox_event, with publish_via_partition_root = true",
        {"publication": {**PUBLICATION, "tables": ["public.a", "public.outbox_event"]}},
    ),
    Case("postgres.publication", "no publication library_outbox", {"publication": None}),
    Case("postgres.publication-filter", "a row filter", {"publication": {**PUBLICATION, "filtered": True}}),
    Case(
        "postgres.publication-filter",
        "a column list without headers, payload",
        {},
        {"published_columns": PUBLISHED_COLUMNS},
    ),
    Case(
        "postgres.publication-filter",
        "payload is generated always as (body), which is not published",
        {"version": 140000},
        {"published_columns": None, "generated_columns": {"payload": "body"}},
    ),
    Case("postgres.publication-older-than-slot", "oid 17000", {"publication": {**PUBLICATION, "oid": 17000}}),
    Case("postgres.slot", "no slot library_outbox", {"slot": None}),
    Case("postgres.slot", "wal2json in database library", {"slot": replace(SLOT, plugin="wal2json")}),
    Case("postgres.slot", "pgoutput in database other", {"slot": replace(SLOT, database="other")}),
    Case("postgres.slot-identity", "library_outbox at 0/1", {"slot": replace(SLOT, confirmed_flush=1)}),
    Case("postgres.slot-identity", "older at 16/B374D848", {"slot": replace(SLOT, name="older")}),
    Case("postgres.slot-active", "not active", {"slot": replace(SLOT, active=False)}),
    Case("postgres.slot-active", "read by other", {"slot": replace(SLOT, reader="other")}),
    Case("postgres.slot-active", "read by an unknown role", {"slot": replace(SLOT, reader=None)}),
    Case("postgres.slot-wal", "lost", {"slot": replace(SLOT, wal_status="lost")}),
    Case("postgres.slot-wal", "unreserved", {"slot": replace(SLOT, wal_status="unreserved")}),
    Case("postgres.slot-wal", "reserved (rows_removed)", {"slot": replace(SLOT, invalidation_reason="rows_removed")}),
    Case(
        "postgres.slot-retained",
        "5121 MB retained",
        {"slot": replace(SLOT, restart_lsn=DEPLOYED.wal_position - 5121 * MB)},
    ),
    Case(
        "postgres.slot-retained",
        "201 MB retained",
        {"slot": replace(SLOT, restart_lsn=DEPLOYED.wal_position - 201 * MB)},
        {"settings": {**SETTINGS, "max_slot_wal_keep_size": 400}},
    ),
    Case(
        "postgres.slot-retained",
        "max_slot_wal_keep_size is 1 MB",
        {},
        {"settings": {**SETTINGS, "max_slot_wal_keep_size": 1}},
    ),
    Case("postgres.slot-failover", "not a failover slot", {"slot": replace(SLOT, failover=False)}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id}: {case.seen}")
def test_each_fault_fails_exactly_its_check(state: DatabaseState, case: Case) -> None:
    broken = replace(state, actual=replace(DEPLOYED, **case.actual), additional=replace(DETAILS, **case.additional))
    assert failing(broken) == {case.id: case.seen}
    actual = run(broken)[case.id]
    assert actual.remedy
    assert actual.expected != actual.seen
    assert actual.status is (Status.WARN if actual.severity is Severity.WARNING else Status.FAIL)


def test_every_database_check_has_a_case() -> None:
    assert set(IDS) - {case.id for case in CASES} == {"postgres.reachable"}


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"seconds_to_expiry": 3 * DAY_S}, Severity.WARNING),
        ({"seconds_to_expiry": -1}, Severity.ERROR),
        ({"settings": {"statement_timeout": "5s"}}, Severity.WARNING),
        ({"settings": {"statement_timeout": "5s"}, "can_select": False}, Severity.ERROR),
    ],
)
def test_only_limits_that_allow_the_connector_to_run_are_warnings(
    state: DatabaseState, changes: dict[str, Any], severity: Severity
) -> None:
    limits = replace(LIMITS, **changes)
    actual = run(replace(state, additional=replace(DETAILS, role_limits=limits)))["postgres.connector-role"]
    assert actual.severity is severity


def test_a_missing_table_is_not_reported_as_a_missing_privilege(state: DatabaseState) -> None:
    """The statement that grants the privilege would fail."""
    limits = replace(LIMITS, can_use_schema=False, can_select=False)
    broken = replace(state, actual=replace(DEPLOYED, columns={}), additional=replace(DETAILS, role_limits=limits))
    assert run(broken)["postgres.connector-role"].status is Status.PASS
    assert run(broken)["postgres.table"].status is Status.FAIL


def test_accepts_limits_that_are_not_reached(state: DatabaseState) -> None:
    limits = replace(
        LIMITS,
        seconds_to_expiry=30 * DAY_S,
        connection_limit=4,
        connections=3,
        settings={"statement_timeout": "0", "wal_sender_timeout": "1min"},
    )
    assert failing(replace(state, additional=replace(DETAILS, role_limits=limits))) == {}


def test_remedy_of_the_role_contains_each_statement(state: DatabaseState) -> None:
    limits = replace(
        LIMITS, can_use_schema=False, seconds_to_expiry=-1, connection_limit=0, settings={"lock_timeout": "1s"}
    )
    actual = run(replace(state, additional=replace(DETAILS, role_limits=limits, can_emit=False)))
    statements = [
        'grant usage on schema "public" to "reader"',
        'grant execute on function pg_logical_emit_message(boolean, text, text, boolean) to "reader"',
        """alter role "reader" valid until 'infinity'""",
        'alter role "reader" connection limit -1',
        'alter role "reader" in database "library" set "lock_timeout" = 0',
    ]
    assert actual["postgres.connector-role"].remedy.startswith(f"run `{'; '.join(statements)}` as an administrator")


@pytest.mark.parametrize("foreign", [{"plugin": "test_decoding"}, {"database": "other"}])
def test_remedy_of_a_foreign_slot_replaces_the_slot(state: DatabaseState, foreign: dict[str, Any]) -> None:
    """`apply --recover` refuses such a slot while it exists."""
    remedy = run(replace(state, actual=replace(DEPLOYED, slot=replace(SLOT, **foreign))))["postgres.slot"].remedy
    drop = "select pg_drop_replication_slot('library_outbox')"
    assert commands_of(remedy) == ["outbox stop", drop, "outbox recover"]


def test_remedy_of_a_column_changes_its_type(state: DatabaseState) -> None:
    columns = {**DEPLOYED.columns, "payload": "json"}
    remedy = run(replace(state, actual=replace(DEPLOYED, columns=columns)))["postgres.table"].remedy
    statement = 'alter table "public"."outbox_event" alter column "payload" type jsonb using "payload"::jsonb'
    assert commands_of(remedy)[0] == statement


@pytest.mark.parametrize(
    ("expression", "step"),
    [
        ("body", "set source.columns.payload: body in the pipeline file, then run `outbox apply`"),
        (
            "to_jsonb(body)",
            'run `alter table "public"."outbox_event" alter column "payload" drop expression`, and make ',
        ),
    ],
)
def test_remedy_of_a_generated_column(state: DatabaseState, expression: str, step: str) -> None:
    actual = replace(DEPLOYED, columns={**COLUMN_TYPES, "body": "jsonb"})
    published_columns = [*(COLUMN_TYPES.keys() - {"payload"}), "body"]
    additional = replace(DETAILS, published_columns=published_columns, generated_columns={"payload": expression})
    check = run(replace(state, actual=actual, additional=additional))["postgres.publication-filter"]
    assert check.remedy.startswith(step)
    assert ("pg_drop_replication_slot" in check.remedy) is (expression != "body")


def test_accepts_generated_columns_that_are_published_or_not_used(state: DatabaseState) -> None:
    additional = replace(DETAILS, generated_columns={"payload": "body", "search": "to_tsvector(body)"})
    assert failing(replace(state, additional=additional)) == {}


def test_remedy_of_a_renamed_table_first_changes_the_publication(state: DatabaseState) -> None:
    """Without this step, `apply` refuses."""
    actual = replace(DEPLOYED, table_oid=16401, publication={**PUBLICATION, "tables": ["public.old"]})
    check = run(replace(state, actual=actual))["postgres.table-identity"]
    assert check.remedy.startswith('run `alter publication "library_outbox" set table "public"."outbox_event"`; then ')


def test_reports_excess_wal_without_failing_delivery(state: DatabaseState) -> None:
    extended = replace(state, actual=replace(DEPLOYED, slot=replace(SLOT, wal_status="extended")))
    assert failing(extended) == {}


@pytest.mark.parametrize(
    "constraint",
    [
        "CHECK ((aggregate_id <> ''::text))",
        "CHECK (((aggregate_id)::text <> ''::text))",
        "CHECK ((length(aggregate_id) > 0))",
        "CHECK ((char_length(aggregate_id) >= 1))",
        "CHECK (((aggregate_id <> ''::text) AND (aggregate_type <> ''::text)))",
    ],
)
def test_accepts_constraints_that_reject_an_empty_key(state: DatabaseState, constraint: str) -> None:
    assert failing(replace(state, additional=replace(DETAILS, check_constraints=[constraint]))) == {}


@pytest.mark.parametrize(
    "constraint",
    [
        "CHECK ((event_type <> ''::text))",
        "CHECK (((aggregate_id <> ''::text) OR (aggregate_type = 'x'::text)))",
        "CHECK ((my_aggregate_id <> ''::text))",
        "CHECK ((length(aggregate_id) < 100))",
    ],
)
def test_reports_constraints_that_accept_an_empty_key(state: DatabaseState, constraint: str) -> None:
    assert list(failing(replace(state, additional=replace(DETAILS, check_constraints=[constraint])))) == [
        "postgres.key-not-empty"
    ]


def test_expectation_and_remedy_of_identity(state: DatabaseState) -> None:
    check = run(replace(state, actual=replace(DEPLOYED, timeline=2)))["postgres.identity"]
    assert check.expected == "system identifier 7301, timeline 1"
    assert "`outbox recover`" in check.remedy


def test_identity_fails_for_another_database_of_the_server(state: DatabaseState) -> None:
    check = run(replace(state, recorded_name="archive"))["postgres.identity"]
    assert (check.status, check.seen) == (Status.FAIL, "system identifier 7301, timeline 1, database library")
    assert check.expected == "system identifier 7301, timeline 1, database archive"


@pytest.mark.parametrize(("cluster_id", "status"), [("k1", Status.PASS), (None, Status.PASS), ("k2", Status.FAIL)])
def test_identity_compares_the_mark_of_the_publication(
    state: DatabaseState, cluster_id: str | None, status: Status
) -> None:
    mark = publication_mark(state.pipeline, state.environment, cluster_id)
    actual = replace(DEPLOYED, publication={**PUBLICATION, "comment": mark})
    assert run(replace(state, actual=actual, recorded_cluster_id="k1"))["postgres.identity"].status is status


def test_missing_partition_field_fails_the_table_check(state: DatabaseState) -> None:
    actual = run(replace(state, pipeline=by_tenant(state.pipeline)))
    assert actual["postgres.table"].seen == "tenant, the partition_field of book, is missing"


def test_returns_every_check_for_an_empty_database(state: DatabaseState) -> None:
    additional = replace(DETAILS, published_columns=None, can_emit=False, check_constraints=[])
    actual = run(replace(state, actual=EMPTY, additional=additional))
    assert list(actual) == IDS
    unknown = {check.id for check in actual.values() if check.status is Status.UNKNOWN}
    assert unknown == {
        "postgres.table-identity",
        "postgres.publication-filter",
        "postgres.publication-older-than-slot",
        "postgres.slot-identity",
        "postgres.slot-active",
        "postgres.slot-wal",
        "postgres.slot-retained",
        "postgres.slot-failover",
    }


def test_accepts_servers_without_failover_and_filter(state: DatabaseState) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "idle_replication_slot_timeout"}
    additional = replace(DETAILS, published_columns=None, settings=settings)
    actual = run(
        replace(
            state, actual=replace(DEPLOYED, version=140024, slot=replace(SLOT, failover=None)), additional=additional
        )
    )
    assert {check.id for check in actual.values() if check.status is not Status.PASS} == set()
    assert actual["postgres.slot-failover"].seen == "PostgreSQL 14 has no failover slots"


def test_stopped_connector_needs_no_active_slot(state: DatabaseState) -> None:
    connector = state.environment.connector.model_copy(update={"state": "stopped"})
    environment = state.environment.model_copy(update={"connector": connector})
    inactive = replace(DEPLOYED, slot=replace(SLOT, active=False))
    assert failing(replace(state, environment=environment, actual=inactive)) == {}


def test_prepared_transaction_blocks_the_creation_of_a_slot(state: DatabaseState) -> None:
    additional = replace(DETAILS, usage={**USAGE, "prepared_ages_s": {"orphan": 0}})
    assert failing(replace(state, additional=additional)) == {}
    actual = run(replace(state, actual=replace(DEPLOYED, slot=None), additional=additional))
    assert "rollback prepared 'orphan'" in actual["postgres.prepared-transactions"].remedy


def test_reports_a_login_without_select_privilege(state: DatabaseState) -> None:
    actual = run(replace(state, additional=replace(DETAILS, moved_key_counts=None)))["postgres.partition-field"]
    assert (actual.status, actual.seen) == (Status.UNKNOWN, "no permission to read the table")


def test_other_tables_are_unknown_if_they_cannot_be_read(state: DatabaseState) -> None:
    additional = replace(DETAILS, other_tables=(OtherTable("tenant", "outbox_event", has_rows=None),))
    actual = run(replace(state, additional=additional))["postgres.other-tables"]
    assert (actual.status, actual.seen) == (Status.UNKNOWN, "cannot read tenant.outbox_event (another schema)")


def test_statements_quote_and_limit_names() -> None:
    statements = OtherTable("Tenant", "x" * 63, ('"P"."o"',)).statements
    assert statements[0] == f'alter table "Tenant"."{"x" * 63}" no inherit "P"."o"'
    assert statements[1] == f'alter table "Tenant"."{"x" * 63}" rename to "{"x" * 49}_not_delivered"'


def test_sequence_is_unknown_if_it_cannot_be_read(state: DatabaseState) -> None:
    actual = run(replace(state, additional=replace(DETAILS, sequence_repair=None)))["postgres.row-sequence"]
    assert actual.status is Status.UNKNOWN


def test_lists_policies_that_do_not_apply_to_the_login(state: DatabaseState) -> None:
    additional = replace(DETAILS, hooks=TriggersAndRules(policies=("tenant",)))
    actual = run(replace(state, additional=additional))["postgres.row-security"]
    assert (actual.status, actual.seen.partition("; ")[2]) == (Status.PASS, "policies: tenant")


def test_accepts_valid_limits(state: DatabaseState) -> None:
    settings = {**SETTINGS, "max_slot_wal_keep_size": 256, "idle_replication_slot_timeout": 86_400}
    assert failing(replace(state, additional=replace(DETAILS, settings=settings))) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5s", 5000),
        ("1.5s", 1500),
        ("100us", 0),
        ("60000", 60_000),
        ("1min", 60_000),
        ("2h", 7_200_000),
        ("0", 0),
        ("10ms", 10),
        ("1d", 86_400_000),
    ],
)
def test_parses_durations(text: str, expected: int) -> None:
    assert parse_milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 weeks", "-1"])
def test_rejects_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_milliseconds(text)


def test_table_checks_pass_for_messages(state: DatabaseState) -> None:
    source = state.pipeline.source.model_copy(update={"message_prefix": "outbox"})
    actual = replace(
        state.actual, columns={}, role={**ROLE, "can_read": False}, publication={**PUBLICATION, "tables": []}
    )
    additional = replace(
        state.additional, nullable_columns=["id"], check_constraints=[], published_columns=None, moved_key_counts={}
    )
    observed = replace(
        state, pipeline=state.pipeline.model_copy(update={"source": source}), actual=actual, additional=additional
    )
    result = {check.id: check for check in evaluate([*checks.RULES, *slot_checks.RULES], observed)}
    not_passed = [check.id for check in result.values() if check.status is not Status.PASS]
    assert not_passed == ["postgres.partition-field"]
    assert result["postgres.partition-field"].status is Status.UNKNOWN
    assert result["postgres.table"].seen == "no table: events are logical decoding messages"
    without_publication = {
        check.id: check
        for check in evaluate(slot_checks.RULES, replace(observed, actual=replace(actual, publication=None)))
    }
    assert without_publication["postgres.publication"].status is Status.FAIL


def test_identity_is_unknown_without_the_privilege(state: DatabaseState) -> None:
    actual = run(replace(state, actual=replace(state.actual, system_identifier="")))["postgres.identity"]
    assert actual.status is Status.UNKNOWN
    assert "grant execute on function pg_control_system()" in actual.remedy
