"""Run the worked example: stack, apply, workload, verify, Spark job, and comparison of the tables."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from outbox_events.errors import OutboxError, RejectedError, UnreachableError
from outbox_events.waiting import Observation, wait_for
from outbox_kit.connect.lifecycle import is_running
from outbox_kit.demo import workload
from outbox_kit.demo.compare_values import compare, json_rows, table_rows
from outbox_kit.demo.report import DemoReport
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.pipeline import PostgresTarget, load_files
from outbox_kit.pipeline.avro import read_definition
from outbox_kit.results import Reporter
from outbox_kit.results.checks import Status
from outbox_kit.stack import Stack, StackState
from outbox_kit.stack.services.java import SPARK_TIMEOUT_S, job_command, job_environment
from outbox_kit.verification import verify

ENVIRONMENT = "local"
# A killed Connect worker restarts within 15 s, and then takes several seconds to read the backlog.
CONNECT_TIMEOUT_S = 10
RUNNING_TIMEOUT_S = 90
STABLE_POLLS = 6
POLL_INTERVAL_S = 0.5
CANARY_TIMEOUT_S = 120


@dataclass(frozen=True)
class Demo:
    """One run of the demo on the embedded stack of a project."""

    pipeline_file: Path
    transactions: int
    seed: int
    progress: Reporter

    @property
    def project_folder(self) -> Path:
        return self.pipeline_file.resolve().parent.parent

    @property
    def result_folder(self) -> Path:
        return self.project_folder / "build" / "demo"

    def run(self, *, keep: bool) -> DemoReport:
        """Run every step and write result.json. Raises OutboxError.

        If the stack is not running, delete its data, start it, and at the end stop it and delete its data. With `keep`,
        stop it only if a step fails. After a failure, the data and logs are retained. A stack that is already running
        is used and not stopped.
        """
        result_file = self.result_folder / "result.json"
        self.result_folder.mkdir(parents=True, exist_ok=True)
        result_file.unlink(missing_ok=True)
        report = DemoReport()
        with self._stack(report, keep=keep) as state:
            self._run_steps(report, state)
        result_file.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")
        return report

    @contextmanager
    def _stack(self, report: DemoReport, *, keep: bool) -> Iterator[StackState]:
        stack = Stack(self.project_folder)
        state = stack.state()
        started_here = state is None
        succeeded = False
        try:
            if state is None:
                with report.step("stack"):
                    stack.down(self.progress, purge=True)
                    state = stack.up(self.progress)
            yield state
            succeeded = True
        finally:
            if started_here and not (keep and succeeded):
                with report.step("stop"):
                    stack.down(self.progress, purge=succeeded)

    def _run_steps(self, report: DemoReport, state: StackState) -> None:
        with open_deployment(self.pipeline_file, ENVIRONMENT) as deployment:
            with report.step("apply"):
                self._apply(deployment, state)
            dead_letters = deployment.dead_letters()
            count_before = dead_letters.count()
            with report.step("workload"):
                self._run_workload(report, state)
            with report.step("verify"):
                self._wait_running(deployment, state)
                self._verify(deployment)
            report.dead_letter_count = dead_letters.count() - count_before
            # Acknowledge the dead letters for the next `outbox verify`, unless some are older than the demo.
            if not count_before:
                dead_letters.acknowledge()
        with report.step("spark"):
            self._materialize()
        with report.step("compare"):
            self.compare(report, state)

    def _run_workload(self, report: DemoReport, state: StackState) -> None:
        report.workload = workload.run(
            state.postgres, transactions=self.transactions, seed=self.seed, progress=self.progress
        )
        with psycopg.connect(state.postgres, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            report.expected_dead_letter_count = len(workload.write_invalid_events(connection))

    def _apply(self, deployment: Deployment, state: StackState) -> None:
        with workload.connect(state.postgres) as connection:
            workload.create_tables(connection)
        apply(deployment, self.progress)
        changes = apply(deployment, self.progress)
        if changes:
            objects = ", ".join(change.object for change in changes)
            raise RejectedError(f"a second apply made changes: {objects}", "report this as a bug of outbox-kit")
        self.progress("a second apply changed nothing")

    def _wait_running(self, deployment: Deployment, state: StackState) -> None:
        """Wait until the connector runs, because a worker that was killed during the workload needs time to restart.

        The slot must also be active, because Connect still reports RUNNING for a killed worker. Several consecutive
        polls must succeed, because a rebalance can move the task of a restarted worker.
        """
        stable_polls = 0
        name, slot = deployment.pipeline.connector.name, deployment.pipeline.source.slot

        def poll() -> Observation[bool]:
            nonlocal stable_polls
            try:
                status = deployment.connect.status(name)
            except UnreachableError as error:
                stable_polls = 0
                return Observation(None, error.message)
            with psycopg.connect(state.postgres, connect_timeout=CONNECT_TIMEOUT_S) as connection:
                query = "select active from pg_replication_slots where slot_name = %s"
                active = connection.execute(query, (slot,)).fetchone() == (True,)
            description = status.text if status else "no status yet"
            stable_polls = stable_polls + 1 if is_running(status) and active else 0
            description += f", slot {'active' if active else 'not active'}"
            return Observation(True if stable_polls >= STABLE_POLLS else None, description)

        hint = "run `outbox stack logs connect`"
        wait_for("the connector to run", poll, seconds=RUNNING_TIMEOUT_S, interval=POLL_INTERVAL_S, hint=hint)

    def _verify(self, deployment: Deployment) -> None:
        checks = verify(deployment, self.progress, canary_seconds=CANARY_TIMEOUT_S)
        # The check of dead letters is expected to fail: the workload writes invalid rows, which the report counts.
        failed_checks = [check for check in checks if check.status is Status.FAIL and check.id != "kafka.dead-letters"]
        if failed_checks:
            problems = "; ".join(f"{check.id}: {check.seen}" for check in failed_checks)
            raise RejectedError(f"checks of `outbox verify` failed: {problems}", failed_checks[0].remedy)
        self.progress(f"{len(checks)} checks passed, including the canary")

    def _materialize(self) -> None:
        """Run the Spark job in a separate process."""
        self.progress("running the Spark job that writes the tables")
        options = ("--output", "json", "--export", str(self.result_folder / "rows"))
        command, env = job_command(self.pipeline_file, ENVIRONMENT, *options), job_environment()
        try:
            result = subprocess.run(
                command, cwd=self.project_folder, env=env, stdout=subprocess.PIPE, timeout=SPARK_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            message = f"the Spark job took more than {SPARK_TIMEOUT_S} s"
            raise OutboxError(message, "run `outbox-materialize`, which does not have a time limit") from None
        if result.returncode != 0:
            raise OutboxError(f"the Spark job ended with exit code {result.returncode}", "see the job's output above")

    def compare(self, report: DemoReport, state: StackState) -> None:
        """Compare every row of every target with the source tables."""
        pipeline, environment = load_files(self.pipeline_file, ENVIRONMENT)
        targets = environment.targets
        with (
            psycopg.connect(state.postgres, connect_timeout=CONNECT_TIMEOUT_S) as source,
            psycopg.connect(state.target, connect_timeout=CONNECT_TIMEOUT_S) as warehouse,
        ):
            for entry in pipeline.materializations:
                self.progress(f"comparing {entry.target}.{entry.table} with library.{entry.aggregate}")
                target = targets[entry.target]
                target_rows: Any
                if isinstance(target, PostgresTarget):
                    target_rows = table_rows(warehouse, target.target_schema, entry.table)
                else:
                    target_rows = json_rows(self.result_folder / "rows" / entry.target / entry.table)
                comparison = compare(
                    entry.aggregate,
                    entry.target,
                    schema=read_definition(pipeline.aggregates[entry.aggregate].schema_path),
                    source=table_rows(source, workload.SCHEMA, entry.aggregate),
                    rows=target_rows,
                )
                report.comparisons.append(comparison)
                report.row_counts.setdefault(entry.target, {})[entry.table] = comparison.target_rows
