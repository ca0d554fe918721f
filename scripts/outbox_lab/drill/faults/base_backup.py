"""Take a base backup of PostgreSQL through the low-level API, because the stack's binaries lack pg_basebackup."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from outbox_kit.stack.services.postgres_home import change_owner
from outbox_lab.drill.stack import DrillStack

START: LiteralString = "select pg_walfile_name(pg_backup_start('outbox-drill', fast => true))"
STOP: LiteralString = """
    select pg_walfile_name(lsn), labelfile from pg_backup_stop(wait_for_archive => false)"""

WAL = "pg_wal"
# pg_basebackup omits the contents of the same folders, so a backup does not contain replication slots.
OMITTED_CONTENTS = frozenset(
    {"pg_dynshmem", "pg_notify", "pg_replslot", "pg_serial", "pg_snapshots", "pg_stat_tmp", "pg_subtrans", WAL}
)
OMITTED_FILES = frozenset({"backup_label", "pg_internal.init", "postmaster.opts", "postmaster.pid"})


def take_base_backup(drill: DrillStack, folder: Path) -> None:
    """Copy the data folder of the running server to `folder`, and add the WAL that a consistent start needs."""
    data = drill.state.postgres_home / "data"
    shutil.rmtree(folder, ignore_errors=True)
    with drill.connect_to_database() as connection:
        first_file = _row(connection, START)[0]
        copy_data(data, folder)
        last_file, label = _row(connection, STOP)
    for file in (data / WAL).iterdir():
        if file.suffix == ".history" or first_file <= file.name <= last_file:
            _copy(str(file), str(folder / WAL / file.name))
    (folder / "backup_label").write_text(label)
    for path in (folder, *folder.rglob("*")):
        change_owner(path, drill.state.postgres_user)


def copy_data(data: Path, folder: Path) -> None:
    """Copy a data folder without its WAL, slots and runtime files. Ignore files that vanish during the copy."""
    shutil.copytree(data, folder, ignore=_omitted, copy_function=_copy)


def _row(connection: psycopg.Connection[Any], query: LiteralString) -> tuple[Any, ...]:
    row: tuple[Any, ...] = connection.execute(query).fetchall()[0]
    return row


def _omitted(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that a backup omits."""
    return set(names) if Path(folder).name in OMITTED_CONTENTS else set(OMITTED_FILES)


def _copy(source: str, target: str) -> None:
    with suppress(FileNotFoundError):  # the server deleted the file, and WAL replay will delete it again
        shutil.copy2(source, target)
