"""Implement the PostgreSQL target: executors copy a batch into a staging table, and the driver merges the rows.

One transaction contains the merge and the progress. The next run drops the staging table of a run that crashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Self
from weakref import WeakKeyDictionary

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_common.column_problems import MAX_POSTGRES_BYTES
from outbox_common.error_text import postgres_message
from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    ROW_STATE_COLUMNS,
    VALID_TO_COLUMN,
    Column,
    ColumnType,
    check_reserved,
    is_widening,
)
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.decoding.rows import defaults
from outbox_spark.errors import REBUILD_HINT, OverlapError, SchemaError
from outbox_spark.jobs.model import Mode, PostgresTarget, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.session.error_redaction import postgres_error
from outbox_spark.session.persisted import DecodedCounts, persist
from outbox_spark.session.run_session import active_session
from outbox_spark.session.stage_metrics import OBSERVATION
from outbox_spark.sinks.postgres.catalog import (
    column_constraints,
    column_types,
    comments,
    count_dead_rows,
    relation_exists,
    schema_exists,
)
from outbox_spark.sinks.postgres.connection import (
    APPLICATION_NAME,
    CTID_COLUMN,
    KeptConnections,
    connect,
    creation_lock,
    lock,
    prepare_merge,
    read_blocks,
    read_query,
    scalar,
    unlock,
)
from outbox_spark.sinks.postgres.merge import apply_staged, rewrite_staged
from outbox_spark.sinks.postgres.progress import (
    CreatedColumns,
    create_offsets_table,
    created_columns,
    delete_progress,
    foreign_table_error,
    lock_run,
    read_progress,
    server_time,
    write_progress,
)
from outbox_spark.sinks.postgres.replace import replace_content
from outbox_spark.sinks.postgres.staging import (
    STAGING_SUFFIX_LENGTH,
    StagingTable,
    abandoned_staging,
    analyze,
    copied_value,
    copy_plan,
    copy_rows,
    count_staged,
    create_staging,
    drop_staging,
    new_staging_name,
)
from outbox_spark.sinks.postgres.statements import STATE_TYPES, TableStatements, column_type, identifiers
from outbox_spark.sinks.target_table import (
    DIFFERENT_COLUMNS,
    STORED_VERSION,
    Batch,
    RetryResult,
    StagedRows,
    TargetTable,
    check_earlier_rows,
    check_stored_columns,
)

# Matches \u0000 in JSON text, unless the backslash itself is escaped. jsonb rejects this escape, as text rejects NUL.
_NUL_IN_JSON = r"(?<!\\)(?:\\\\)*\\u0000"
_EARLY_PLANS: WeakKeyDictionary[DataFrame, Any] = WeakKeyDictionary()
"""Plans of `stage_early` by the decoded rows, which small batches of a table share (PreparedRows)."""
MAX_KEY_BYTES = 2048
"""Maximum size of a key. An entry of a B-tree index has at most 2,704 bytes, and in history tables it also contains the
version. The server accepts some longer keys, if it can compress them."""


class PostgresTable(TargetTable):
    """One table of a PostgreSQL schema. The run holds the table's lock and has a connection only inside `with`."""

    def __init__(
        self,
        target: PostgresTarget,
        table: str,
        mode: Mode = Mode.HARD_DELETE,
        connections: KeptConnections | None = None,
    ) -> None:
        max_length = MAX_POSTGRES_BYTES - STAGING_SUFFIX_LENGTH
        if len(table) > max_length:
            message = f"table name {table} is {len(table)} characters long"
            raise ConfigurationError(message, f"choose a table name of at most {max_length} characters")
        self._target = target
        self._connections = connections
        self._tables = TableStatements(target.schema, table, mode=mode)
        self._last_run: int | None = None
        """Number of the table's last commit that this run has read or written."""
        self.stages_early = True

    def __enter__(self) -> Self:
        connections = self._connections
        self._connection = connect(self._target) if connections is None else connections.take(self._target)
        try:
            lock(self._connection, self._lock_key, self._tables.label)
            self._drop_abandoned_staging()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            stack.callback(self._connection.close)  # even after Ctrl-C, because the lock would remain
            try:
                with suppress(psycopg.Error):
                    self._drop_abandoned_staging()  # after a batch that failed
            finally:
                # After the client has closed the connection, the session can hold its lock while the next run starts.
                with suppress(psycopg.Error):
                    unlock(self._connection, self._lock_key)
                    if self._connections is not None:
                        stack.pop_all()
                        self._connections.put(self._target, self._connection)

    def current_time(self) -> datetime:
        """Return the server's time."""
        with self._server_errors():
            return server_time(self._connection)

    def committed(self) -> TableProgress | None:
        """Return the progress; None if the table does not exist. In that case, the run reads the entire topic."""
        run, progress = read_progress(self._connection, self._tables)
        if run is not None:
            self._last_run = run
        return progress

    def check(self, columns: Sequence[Column], schema: StructType) -> None:  # noqa: ARG002 - nested types are jsonb
        """Raise SchemaError for a field without a usable column, and ConfigurationError for a different mode."""
        check_reserved(columns, self._tables.label, "postgres")
        types = self._column_types()
        if not types:
            return
        self._check_mode(types)
        self._check_created(columns, types)
        for column in columns:
            actual, expected = types.get(column.name), column_type(column)
            if actual is not None and actual != expected and not is_widening(actual, expected):
                message = f"column {self._tables.label}.{column.name} has type {actual}; the schema requires {expected}"
                raise SchemaError(message, f"restore the field's type in the schema, or {REBUILD_HINT}")

    def _check_created(self, columns: Sequence[Column], types: Mapping[str, str]) -> None:
        """Raise SchemaError for a manually added column that prevents rows from being written correctly."""
        label, created = self._tables.label, created_columns(self._connection, self._tables)
        for column in columns:
            if column.name in types and column.name not in created.all:
                message = f"outbox-materialize did not create column {label}.{column.name}"
                raise SchemaError(f"{message}, but the schema has this field", "rename or drop the column")
        check_stored_columns(created.current, types, label)
        check_earlier_rows(columns, created.current, created.removed, label)
        for name, (is_not_null, default) in column_constraints(self._connection, self._tables.target).items():
            if is_not_null and default is None and name not in created.all:
                message = f"column {label}.{name}, which outbox-materialize did not create, is NOT NULL"
                raise SchemaError(message, "set a default for the column, or remove its NOT NULL constraint")

    def _check_mode(self, types: Mapping[str, str]) -> None:
        actual, expected = Mode.HISTORY if VALID_TO_COLUMN in types else Mode.HARD_DELETE, self._tables.mode
        actual = Mode.SOFT_DELETE if DELETED_AT_COLUMN in types else actual
        if actual is not expected:
            message = f"table {self._tables.label} was created with mode {actual}, but the job has mode {expected}"
            # History tables have a different primary key from other tables, and a rebuild does not change primary keys.
            drop_hint = "drop the table, so that the next run recreates it"
            hint = drop_hint if Mode.HISTORY in {actual, expected} else REBUILD_HINT
            raise ConfigurationError(message, f"set the mode back to {actual}, or {hint}")

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:
        """Return the condition for text with NUL or invalid UTF-8, long keys, JSON with NUL, or years beyond 1-9999."""
        if column.kind is ColumnType.TEXT:
            is_unsupported = F.contains(value, F.lit("\x00")) | ~F.is_valid_utf8(value)
            if column.name == KEY_COLUMN:
                is_unsupported |= F.octet_length(value) > MAX_KEY_BYTES
            return is_unsupported
        if column.kind is ColumnType.JSON:
            json_text = F.to_json(value, JSON_OPTIONS)
            # contains() is fast, and excludes nearly all values before rlike() is evaluated.
            return F.contains(json_text, F.lit("\\u0000")) & F.rlike(json_text, F.lit(_NUL_IN_JSON))
        if column.kind in {ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}:
            return ~F.year(value).between(1, 9999)
        return None

    def stage_early(
        self, rows: DataFrame, columns: Sequence[Column], metrics: Sequence[Expression]
    ) -> StagedRows | None:
        """Copy the rows into a staging table while Spark observes the metrics. Return None if this is disabled."""
        if not self.stages_early:
            return None
        plan = _EARLY_PLANS.get(rows)
        if plan is None:
            plan = _EARLY_PLANS[rows] = copy_plan(rows.observe(OBSERVATION, *metrics), columns, self._target)
        staged = self._stage(plan, columns)
        if not staged.metrics:  # a Spark extension has removed the observation from the plan
            self.discard(staged, disable=True)
            return None
        return staged

    def discard(self, staged: StagedRows, *, disable: bool) -> None:
        """Drop the staging table. If an abandoned task still locks the table, drop it at the end of the run."""
        self.stages_early = self.stages_early and not disable
        with self._server_errors(), suppress(psycopg.errors.LockNotAvailable):
            drop_staging(self._connection, [staged.location.name])

    def write(self, batch: Batch) -> WriteCounts:
        """Stage the rows unless `stage_early` has staged them, then merge them in one transaction."""
        types, state_columns = self._column_types(), STATE_TYPES[self._tables.mode]
        names = {KEY_COLUMN, *(column.name for column in batch.columns), *METADATA_COLUMNS, *state_columns}
        added_columns = self._new_columns(batch, types)
        staged = batch.staged or self._stage_rows(batch.rows, batch.columns)
        staging: StagingTable = staged.location
        with self._server_errors():
            create_offsets_table(self._connection, self._tables)
            created = created_columns(self._connection, self._tables) if types else CreatedColumns()
        removed = [name for name in types if name in created.all and name not in names]
        tables = replace(self._tables, columns=batch.columns, removed_columns=removed)
        with self._server_errors(), self._connection.transaction():
            prepare_merge(self._connection)
            counts = self._count_staged(staging, batch.counts.rows)
            self._prepare_tables(tables, batch, added_columns)
            write_counts = self._merge(tables, staging, counts, batch)
            write_progress(self._connection, tables, batch.committed, created.followed_by(names))
            self._connection.execute(SQL("drop table {}").format(staging.name))
        self._last_run = batch.committed.run
        return write_counts

    def row_states(self) -> DataFrame:
        """Return the key, metadata and state of the rows that are not older versions. The lock must be held."""
        types = self._column_types()
        names, state_types = identifiers((KEY_COLUMN, *METADATA_COLUMNS)), ("boolean", "timestamptz", "timestamptz")
        states = SQL(", ").join(
            SQL("{}::{} as {}").format(Identifier(name) if name in types else SQL("null"), SQL(kind), Identifier(name))
            for name, kind in zip(ROW_STATE_COLUMNS, state_types, strict=True)
        )
        query = SQL("select {}, {}, ctid as {} from {}").format(
            names, states, Identifier(CTID_COLUMN), self._tables.target
        )
        query += self._older_version_condition(SQL(" where {}"))
        size = SQL("select pg_relation_size({}::regclass) / current_setting('block_size')::int")
        with self._server_errors():
            block_count = scalar(self._connection, size.format(Literal(self._tables.target.as_string())))
        return read_blocks(active_session(), self._target, query.as_string(self._connection), block_count)

    def column_names(self, columns: Sequence[Column]) -> list[str]:  # noqa: ARG002 - names are case-sensitive
        return list(self._column_types())

    def quarantined_versions(self, topic_id: str) -> DataFrame:
        rows = self._query(self._tables.newest_quarantined(topic_id))
        return rows.select(KEY_COLUMN, F.struct(*VERSION_COLUMNS).alias(STORED_VERSION))

    def different_fields(self, stack: ExitStack, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Copy the rows into a staging table, and have the server compare them with the stored rows.

        The server compares the values as it stores them, for example jsonb regardless of the order of members.
        """
        staging: StagingTable = self._stage_rows(rows, columns).location
        with self._server_errors():
            with self._connection.transaction():
                self._count_staged(staging, sum(staging.row_counts.values()))
            analyze(self._connection, staging.name)
        query = self._tables.different_rows(columns, staging.name) + self._older_version_condition(SQL(" and t.{}"))
        differences = self._query(query)
        version = F.struct(*VERSION_COLUMNS).alias(STORED_VERSION)
        differences = persist(stack, differences.select(KEY_COLUMN, version, DIFFERENT_COLUMNS))
        differences.count()  # reads the staging table before it is dropped
        with self._server_errors():
            drop_staging(self._connection, [staging.name])
        return differences

    def _older_version_condition(self, template: SQL) -> Composed:
        """Return `template` with the condition that excludes older versions, or empty SQL if there are none."""
        if VALID_TO_COLUMN not in self._column_types():
            return SQL("").format()
        return template.format(SQL("{} is null").format(Identifier(VALID_TO_COLUMN)))

    def quarantined(self, topic_id: str, reason: str) -> DataFrame:
        names = identifiers([KEY_COLUMN, *METADATA_COLUMNS, "value", "schema_header"])
        query = SQL("select {} from {} where topic_id = {} and reason = {}")
        return self._query(query.format(names, self._tables.quarantine, Literal(topic_id), Literal(reason)))

    def update_quarantined(self, topic_id: str, results: Sequence[RetryResult]) -> None:
        parameters = (*map(list, zip(*results, strict=True)), topic_id)
        with self._server_errors(), self._connection.transaction():
            for statement in self._tables.update_quarantined():
                self._connection.execute(statement, parameters)

    def _query(self, query: Composed) -> DataFrame:
        return read_query(active_session(), self._target, query.as_string(self._connection))

    def expire_ledger(self, before: datetime) -> int:
        """Remove the ledger entries older than `before`, and return their number. Do nothing in history mode."""
        if self._tables.mode is Mode.HISTORY or not relation_exists(self._connection, self._tables.tombstones):
            return 0
        with self._server_errors():
            statement = SQL("delete from {} where _timestamp < %s").format(self._tables.tombstones)
            return self._connection.execute(statement, (before,)).rowcount

    def replace_by(self, shadow: Self) -> None:
        """Replace the table's content with that of the shadow table in one transaction, and drop the shadow table.

        Raises RefusedError if this table has no progress, if the shadow table does not exist, or if `replace_content`
        raises it.
        """
        progress = shadow.committed()
        if progress is None:
            message = f"{shadow._tables.label} does not exist, so it cannot replace {self._tables.label}"
            raise RefusedError(message, "run `outbox-rebuild` again")
        connection = self._connection
        with self._server_errors(), connection.transaction():
            run = lock_run(connection, self._tables)
            if run is None and relation_exists(connection, self._tables.target):
                raise foreign_table_error(self._tables)
            run = max(progress.run, run or 0) + 1
            created, names = (created_columns(connection, tables) for tables in (self._tables, shadow._tables))
            replace_content(connection, self._tables, shadow._tables, created.all)
            delete_progress(connection, shadow._tables)
            write_progress(connection, self._tables, replace(progress, run=run), names)
        self._last_run, shadow._last_run = run, None

    def drop(self) -> None:
        """Drop the table, its ledger and its progress."""
        with self._server_errors(), self._connection.transaction():
            for name in (self._tables.target, self._tables.tombstones):
                self._connection.execute(SQL("drop table if exists {}").format(name))
            delete_progress(self._connection, self._tables)
        self._last_run = None

    def maintain(self) -> str:
        """Vacuum and analyze the table and its ledger. Return text with the numbers of dead rows."""
        with self._server_errors():
            return "; ".join(map(self._vacuum, (self._tables.target, self._tables.tombstones)))

    def _vacuum(self, table: Identifier) -> str:
        """Vacuum and analyze a table. Rows that an open transaction may still read remain until the next VACUUM."""
        count_before = count_dead_rows(self._connection, table)
        # The connection is in autocommit mode, because VACUUM cannot run in a transaction.
        self._connection.execute(SQL("vacuum (analyze) {}").format(table))
        count_after = count_dead_rows(self._connection, table)
        return f"{table.as_string(self._connection)}: {count_before} dead rows before, {count_after} after"

    def _prepare_tables(self, tables: TableStatements, batch: Batch, added_columns: Mapping[Column, object]) -> None:
        """Create or change the tables in the current transaction. Raises OverlapError if another run has committed."""
        connection = self._connection
        if lock_run(connection, tables) != self._last_run:
            message = f"another run has committed to {tables.label}"
            raise OverlapError(message, "run the command again, and schedule only one run per table at a time")
        if batch.previous is None:
            self._create_tables(tables)
        else:
            self._change_columns(tables, added_columns)
        actual = comments(connection, tables.target)
        for name, text in tables.comments(batch.committed.topic).items():
            if actual.get(name) != text:
                connection.execute(tables.comment(name, text))

    def _create_tables(self, tables: TableStatements) -> None:
        """Create the table, ledger and quarantine. Replace an existing ledger, but keep an existing quarantine."""
        has_quarantine = relation_exists(self._connection, tables.quarantine)
        quarantine_statements = [] if has_quarantine else tables.create_quarantine()
        for statement in [tables.create_table(), *tables.create_ledger(), *quarantine_statements]:
            self._connection.execute(statement)

    def _change_columns(self, tables: TableStatements, added_columns: Mapping[Column, object]) -> None:
        types = self._column_types()
        for column in tables.columns:
            if column in added_columns:
                for statement in tables.add_column(column, added_columns[column]):
                    self._connection.execute(statement)
            elif types[column.name] != column_type(column):
                self._connection.execute(tables.widen_column(column))

    def _count_staged(self, staging: StagingTable, expected: int) -> DecodedCounts:
        """Count the staged rows. Raises OutboxError if rows are missing, because the next run would skip these rows."""
        counts = count_staged(self._connection, staging)
        if counts.rows != expected:
            message = f"the staging table of {self._tables.label} has {counts.rows} of {expected} rows"
            raise OutboxError(message, "run the command again; the server may have lost staged rows in a crash")
        return counts

    def _merge(
        self, tables: TableStatements, staging: StagingTable, counts: DecodedCounts, batch: Batch
    ) -> WriteCounts:
        topic_id, is_new_table = batch.committed.topic_id, batch.previous is None
        if batch.rewrites:
            return rewrite_staged(self._connection, tables, staging.name, topic_id)
        return apply_staged(
            self._connection,
            tables,
            staging.name,
            counts,
            topic_id,
            is_new_table=is_new_table,
            may_repeat=batch.may_repeat,
        )

    def _stage_rows(self, rows: DataFrame, columns: Sequence[Column]) -> StagedRows:
        return self._stage(copy_plan(rows, columns, self._target), columns)

    def _stage(self, plan: Any, columns: Sequence[Column]) -> StagedRows:  # noqa: ANN401 - CopyRows of outbox-spark.jar
        name = new_staging_name(self._tables.schema, self._tables.table)
        with self._server_errors():
            self._ensure_schema()
            self._connection.execute(create_staging(name, columns))
        row_counts, metrics = self._copy(plan, name)
        return StagedRows(metrics, StagingTable(name, row_counts))

    def _copy(self, plan: Any, name: Identifier) -> tuple[Mapping[int, int], Mapping[str, Any]]:  # noqa: ANN401 - as above
        return copy_rows(plan, self._target, name.as_string(self._connection))

    def _new_columns(self, batch: Batch, types: Mapping[str, str]) -> dict[Column, object]:
        """Return the columns that an existing table lacks, with their values for its rows; empty for a new table."""
        if not types:
            return {}
        new_columns = [column for column in batch.columns if column.name not in types]
        with_default = [column for column in new_columns if column.has_default]
        values: dict[str, Any] = {}
        if with_default:
            frame = defaults(batch.rows.sparkSession, with_default, batch.reader_schema)
            row = frame.select(*[copied_value(column).alias(column.name) for column in with_default]).collect()[0]
            values = {name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.asDict().items()}
        return {column: values.get(column.name) for column in new_columns}

    def _drop_abandoned_staging(self) -> None:
        names = abandoned_staging(self._connection, self._tables.schema, self._tables.table)
        drop_staging(self._connection, names)

    def _ensure_schema(self) -> None:
        # CREATE SCHEMA IF NOT EXISTS requires the privilege CREATE on the database even if the schema exists.
        if not schema_exists(self._connection, self._tables.schema):
            with creation_lock(self._connection, self._tables.schema):
                self._connection.execute(SQL("create schema if not exists {}").format(Identifier(self._tables.schema)))

    def _column_types(self) -> dict[str, str]:
        return column_types(self._connection, self._tables.target)

    @property
    def _lock_key(self) -> str:
        return f"{APPLICATION_NAME} {self._tables.label}"

    @contextmanager
    def _server_errors(self) -> Iterator[None]:
        """Convert errors of psycopg to OutboxError."""
        try:
            yield
        except psycopg.Error as error:
            raise self._write_error(error) from error

    def _write_error(self, error: psycopg.Error) -> OutboxError:
        """Return the error of a write. It is not retryable if a constraint or trigger of the table rejects a row."""
        is_constraint = isinstance(error, psycopg.errors.IntegrityError) and error.diag.schema_name != "pg_catalog"
        if isinstance(error, psycopg.errors.RaiseException):  # its message can contain values of the row
            message = f"a trigger rejects rows of {self._tables.label}, SQLSTATE {error.sqlstate}"
        elif is_constraint:
            message = f"PostgreSQL rejects rows of {self._tables.label}: {postgres_message(error)}"
        else:
            return postgres_error(error, f"PostgreSQL failed to write {self._tables.label}")
        return RefusedError(message, "remove the constraint or trigger; the table must accept every state of the topic")
