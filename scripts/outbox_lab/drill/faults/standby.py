"""Run a synchronous standby of the stack's PostgreSQL, which can also copy the failover slots."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from outbox_common.private_files import write_private
from outbox_events.waiting import Observation, wait_for
from outbox_kit.stack.ports import HOST, free_port
from outbox_kit.stack.processes import process_marker
from outbox_kit.stack.services.postgres_home import change_owner
from outbox_lab.drill.faults.base_backup import take_base_backup
from outbox_lab.drill.project import STANDBY
from outbox_lab.drill.stack import DrillStack

SLOT = "outbox_drill_standby"
READY_S = 45
STOP_S = 30
PRIMARY_SETTINGS = ("synchronous_standby_names", "synchronized_standby_slots")
CREATE_SLOT: LiteralString = "select pg_create_physical_replication_slot(%s, true)"
DROP_SLOT: LiteralString = """
    select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active"""
IS_SYNCHRONOUS: LiteralString = "select 1 from pg_stat_replication where application_name = %s and sync_state = 'sync'"
FAILOVER_SLOTS: LiteralString = "select slot_name from pg_replication_slots where failover"
SYNCED_SLOTS: LiteralString = "select slot_name from pg_replication_slots where synced and not temporary"
# The standby copies a slot when it has replayed the slot's catalog_xmin. By default, this takes up to 15 s.
LOG_SNAPSHOT: LiteralString = "select pg_log_standby_snapshot()"
PROMOTE: LiteralString = "select pg_promote(wait => true)"


class Standby:
    """A standby of the stack's server. It has a separate data folder and uses a physical slot."""

    def __init__(self, drill: DrillStack, *, keeps_slots: bool) -> None:
        self._drill = drill
        self._keeps_slots = keeps_slots
        self._home = drill.state.postgres_home
        self.folder = self._home / STANDBY
        """Data folder of the standby."""
        self._port = free_port(drill.state.ports.values())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start the standby, and wait until it is synchronous. At the end of the block, stop the standby gracefully."""
        with self._drill.connect_to_database() as primary:
            primary.execute(CREATE_SLOT, (SLOT,))
            take_base_backup(self._drill, self.folder)
            process = self._launch()
            try:
                self._synchronize(primary)
                yield
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(STOP_S)

    def promote(self) -> None:
        """Promote the standby, and return when the standby accepts writes. Raises psycopg.Error."""
        with self._connect() as connection:
            connection.execute(PROMOTE)

    def abandon(self) -> None:
        """Reset the primary so that it commits without the standby. Call this if the standby will not be promoted."""
        with self._drill.connect_to_database() as primary:
            for name in PRIMARY_SETTINGS:
                primary.execute(sql.SQL("alter system reset {}").format(sql.Identifier(name)))
            primary.execute("select pg_reload_conf()")
            primary.execute(DROP_SLOT, (SLOT,))

    def _launch(self) -> subprocess.Popen[bytes]:
        user = self._drill.state.postgres_user
        signal_file = self.folder / "standby.signal"
        signal_file.touch()
        change_owner(signal_file, user)
        settings = self._settings()
        command = [str(self._home / "dist" / "bin" / "postgres"), "-D", str(self.folder)]
        command += [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        with (self._drill.logs / "standby.log").open("ab") as log:
            return subprocess.Popen(
                command,
                user=user if os.geteuid() == 0 else None,
                cwd="/",
                env={},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _settings(self) -> dict[str, str]:
        """Return the standby's settings. They are passed on the command line, so the data folder does not keep them."""
        state = self._drill.state
        password_file = self._home / ".standby-password"
        password_file.unlink(missing_ok=True)
        write_private(password_file, f"*:*:*:*:{state.admin_password}\n")
        change_owner(password_file, state.postgres_user)
        address = f"host={HOST} port={state.postgres_port} user={state.admin_user} dbname=postgres"
        return {
            "port": str(self._port),
            "cluster_name": process_marker(self._drill.stack.layout, STANDBY),
            "primary_conninfo": f"{address} passfile={password_file} application_name={SLOT}",
            "primary_slot_name": SLOT,
            "hot_standby_feedback": "on",
            "sync_replication_slots": "on" if self._keeps_slots else "off",
        }

    def _synchronize(self, primary: psycopg.Connection[Any]) -> None:
        """Make commits wait for the standby. If slots are kept, also wait until the standby has copied the slots."""
        primary.execute(f"alter system set synchronous_standby_names = '{SLOT}'")
        if self._keeps_slots:
            # Otherwise the connector could receive changes that the standby has not received.
            primary.execute(f"alter system set synchronized_standby_slots = '{SLOT}'")
        primary.execute("select pg_reload_conf()")
        wait_for("a synchronous standby", lambda: _check_synchronous(primary), seconds=READY_S)
        if self._keeps_slots:
            with self._connect() as standby:
                wait_for("the copy of the slots", lambda: _check_slots(primary, standby), seconds=READY_S)

    def _connect(self) -> psycopg.Connection[Any]:
        state = self._drill.state
        dsn = state.postgres.replace(f":{state.postgres_port}/", f":{self._port}/")
        return psycopg.connect(dsn, autocommit=True, connect_timeout=5)


def _check_synchronous(primary: psycopg.Connection[Any]) -> Observation[bool]:
    is_synchronous = bool(primary.execute(IS_SYNCHRONOUS, (SLOT,)).fetchall())
    return Observation(is_synchronous or None, "not in pg_stat_replication with sync_state = sync")


def _check_slots(primary: psycopg.Connection[Any], standby: psycopg.Connection[Any]) -> Observation[bool]:
    primary.execute(LOG_SNAPSHOT)
    expected = {row[0] for row in primary.execute(FAILOVER_SLOTS).fetchall()}
    missing = expected - {row[0] for row in standby.execute(SYNCED_SLOTS).fetchall()}
    return Observation(not missing or None, f"no copy of {', '.join(sorted(missing))}")
