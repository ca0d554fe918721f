"""The command `outbox-maintain`, or spark-submit spark_jobs/maintain.py: compacts tables and expires what is old."""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from outbox_spark.command import Exit, Tell, command_parser, explain, guarded, jobs_of, tell
from outbox_spark.model import MaterializeJob
from outbox_spark.session import start_session
from outbox_spark.sinks import open_table
from outbox_spark.unexpected import explained


@dataclass(frozen=True)
class Maintained:
    """The result of one table: what `--output json` prints."""

    aggregate: str
    target: str
    table: str
    done: str = ""
    error: str | None = None
    hint: str | None = None
    transient: bool | None = None
    """Of a failure: whether trying again may help."""


def maintain(
    spark: SparkSession, jobs: Sequence[MaterializeJob], tell: Tell, *, debug: bool = False
) -> list[Maintained]:
    """Each table once. One that fails does not keep the others from their turn."""
    return [_attempt(spark, job, tell, debug=debug) for job in jobs]


def _attempt(spark: SparkSession, job: MaterializeJob, tell: Tell, *, debug: bool) -> Maintained:
    names = (job.aggregate, job.target_name, job.table)
    try:
        with open_table(spark, job) as table:
            done = table.maintain()
    except Exception as error:  # whatever it is, the other tables still get their turn
        if debug:
            tell(traceback.format_exc())
        known = explained(error)
        explain(known, tell, str(job))
        return Maintained(*names, error=known.message, hint=known.hint, transient=known.transient)
    tell(done)
    return Maintained(*names, done=done)


def main(arguments: Sequence[str] | None = None, start: Callable[[str], SparkSession] = start_session) -> int:
    """The command. Result on stdout, words on stderr. Returns one of command.Exit."""
    options = _parser().parse_args(arguments)
    return guarded(lambda: _main(options, start), debug=options.debug)


def _main(options: argparse.Namespace, start: Callable[[str], SparkSession]) -> int:
    jobs = jobs_of(options)
    tell("starting Spark")
    spark = start("outbox-maintain")
    try:
        results = maintain(spark, jobs, tell, debug=options.debug)
    finally:
        spark.stop()
    print(_as_json(results) if options.output == "json" else _as_table(results))
    bad = [result for result in results if result.error is not None]
    if not bad:
        return Exit.DONE
    return Exit.FAILED if all(result.transient for result in bad) else Exit.REFUSED


def _as_json(results: Sequence[Maintained]) -> str:
    return json.dumps({"maintained": [asdict(result) for result in results]}, indent=2)


def _as_table(results: Sequence[Maintained]) -> str:
    return "\n".join(f"{r.target}.{r.table}  {r.done if r.error is None else 'failed: ' + r.error}" for r in results)


def _parser() -> argparse.ArgumentParser:
    description = "Compact the files of tables and expire what is no longer needed."
    return command_parser("outbox-maintain", description)
