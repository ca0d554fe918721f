"""Run a PostgreSQL server with three databases: source, target and registry."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

import psycopg

from outbox_common.private_files import write_private
from outbox_events.waiting import Observation
from outbox_kit.stack import health_checks
from outbox_kit.stack.errors import StackError
from outbox_kit.stack.ports import HOST
from outbox_kit.stack.processes import command_lines, process_marker
from outbox_kit.stack.services.postgres_home import change_owner, create_home, unpack
from outbox_kit.stack.services.service import Context, Program, Service
from outbox_kit.stack.tools import run_tool

INITDB_SECONDS = 120
# Every connection requires a password, including administrator and replication connections.
PG_HBA = """\
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""

SERVER_SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "60",
    "max_wal_senders": "60",
    # With the default of 0, the server rejects the prepared transactions that some sinks use.
    "max_prepared_transactions": "64",
}
"""Settings that differ from PostgreSQL's defaults both in the embedded server and in the container."""


def server_settings(port: int, cluster_name: str) -> dict[str, str]:
    """Return the settings of postgresql.conf. Durability settings keep their defaults."""
    return {
        "listen_addresses": f"'{HOST}'",
        "port": str(port),
        # The server does not use a unix socket, because the path of the socket could be too long.
        "unix_socket_directories": "''",
        "cluster_name": f"'{cluster_name}'",
        **SERVER_SETTINGS,
        "max_connections": "100",
        "password_encryption": "'scram-sha-256'",
        "shared_buffers": "'128MB'",
        "max_wal_size": "'1GB'",
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        "log_line_prefix": "'%m [%p] %u@%d '",
        # Failed statements are not logged, because they can contain a password.
        "log_min_error_statement": "'panic'",
    }


def render_settings(settings: Mapping[str, str]) -> str:
    """Render postgresql.conf. The values must already be quoted."""
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


class Postgres(Service):
    """The PostgreSQL server as a service of the stack."""

    name = "postgres"
    start_seconds = 60.0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.home = context.state.postgres_home
        self.data = self.home / "data"

    def prepare(self) -> None:
        """Unpack the binaries, create the data directory before the first start, and write the configuration."""
        create_home(self.home, self.layout)
        unpack(self.layout, self.home)
        if not self.data.exists():
            self.initialize()
        self.remove_stale_pid_file()
        marker = process_marker(self.layout, self.name)
        settings = server_settings(self.state.postgres_port, marker)
        for file, text in (("postgresql.conf", render_settings(settings)), ("pg_hba.conf", PG_HBA)):
            (self.data / file).write_text(text)

    def initialize(self) -> None:
        """Run initdb in a temporary folder, so that an incomplete data directory is never used."""
        unfinished_folder = self.home / "data.unfinished"
        shutil.rmtree(unfinished_folder, ignore_errors=True)
        unfinished_folder.mkdir(mode=0o700)
        password_file = self.home / ".initdb-password"
        password_file.unlink(missing_ok=True)
        write_private(password_file, self.state.admin_password)
        user = self.state.postgres_user
        for path in (unfinished_folder, password_file):
            change_owner(path, user)
        command = (
            str(self.home / "dist" / "bin" / "initdb"),
            f"--pgdata={unfinished_folder}",
            f"--username={self.state.admin_user}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            # With these options, every platform uses the same collation.
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
        )
        try:
            run_tool("PostgreSQL's initdb", command, seconds=INITDB_SECONDS, folder=self.home, user=user)
        finally:
            password_file.unlink()
        unfinished_folder.rename(self.data)

    def remove_stale_pid_file(self) -> None:
        """Remove the postmaster.pid of a killed server if another program now has the same pid.

        PostgreSQL would refuse to start because of this file. Pids are reused quickly in containers.
        """
        file = self.data / "postmaster.pid"
        if not file.exists():
            return
        pid = file.read_text().partition("\n")[0].strip()
        arguments = command_lines().get(int(pid), "") if pid.isdigit() else ""
        if "postgres" not in arguments:
            file.unlink()

    def program(self) -> Program:
        marker = process_marker(self.layout, self.name)
        command = (str(self.home / "dist" / "bin" / "postgres"), "-D", str(self.data), "-c", f"cluster_name={marker}")
        # SIGINT requests a fast shutdown, which ends sessions. Only the server gets the signal and stops its children.
        return Program(
            command,
            environment={"PGDATA": str(self.data)},
            user=self.state.postgres_user if os.geteuid() == 0 else None,
            stop_signal="INT",
            stop_seconds=30,
            stop_group=False,
        )

    def check(self) -> Observation[bool]:
        state = self.state
        try:
            return health_checks.check_postgres(state.dsn(state.admin_user, state.admin_password, "postgres"), state)
        except psycopg.Error as error:
            message = f"cannot create the stack's roles and databases: {error}"
            raise StackError(message, f"see {self.layout.log(self.name)}") from error
