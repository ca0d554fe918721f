"""Every command line, option, exit code and file in the guides to scheduling and monitoring exists."""

from __future__ import annotations

import argparse
import ast
import configparser
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.spark.job_files import job

from outbox_spark.commands import maintain, metrics, reconcile
from outbox_spark.commands.exit_codes import Exit
from outbox_spark.commands.materialize import _parser, _validate
from outbox_spark.jobs.job_file import as_text
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.session import spark_session
from outbox_spark.session.stage_metrics import JOB_GROUP_PREFIX, METRIC_METHODS, OBSERVATION
from outbox_spark.session.version_check import SPARK_VERSION, SUPPORTED_VERSIONS
from outbox_spark.spark_submit_files import ZIP_NAME

PROJECT = Path(__file__).resolve().parents[3]
GUIDE = (PROJECT / "docs/scheduling.md").read_text(encoding="utf-8")
MONITORING = (PROJECT / "docs/monitoring-tables.md").read_text(encoding="utf-8")
EXAMPLES = PROJECT / "docs/examples"
FILES = [path for path in EXAMPLES.iterdir() if path.is_file()]
"""Examples for schedulers. The folders also contain other examples."""
FATAL = [Exit.USAGE, Exit.REFUSED]
"""Exit codes that no scheduler retries."""


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] - systemd's keys have capitals
    parser.read_string((EXAMPLES / name).read_text(encoding="utf-8"))
    return parser


def manifest(name: str) -> dict[str, Any]:
    actual = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    assert isinstance(actual, dict)
    return actual


def cron_job() -> dict[str, Any]:
    actual: dict[str, Any] = manifest("cronjob.yaml")["spec"]["jobTemplate"]["spec"]
    return actual


def airflow() -> dict[str, Any]:
    """Return the constants of the DAG file, which cannot be imported without Airflow."""
    tree = ast.parse((EXAMPLES / "airflow_dag.py").read_text(encoding="utf-8"))
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            names = [part.id for part in getattr(target, "elts", [target]) if isinstance(part, ast.Name)]
            values = ast.literal_eval(node.value)
            constants |= dict(zip(names, values if len(names) > 1 else [values], strict=True))
    return constants


def guide_commands() -> list[list[str]]:
    """Return the arguments of each outbox-materialize and materialize.py command in the guide."""
    actual = []
    for block in re.findall(r"```sh\n(.*?)```", GUIDE + MONITORING, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            arguments = shlex.split(line, comments=True)
            for index, argument in enumerate(arguments):
                if argument == "outbox-materialize" or argument.endswith("/materialize.py"):
                    actual.append(arguments[index + 1 :])
    return actual


def crontab(command: str) -> str:
    """Return the line of the crontab that runs a command."""
    lines = (EXAMPLES / "crontab").read_text().splitlines()
    actual = [line for line in lines if f"/{command} " in line and not line.startswith("#")]
    assert len(actual) == 1
    return actual[0]


def crontab_arguments(command: str) -> list[str]:
    return shlex.split(crontab(command).partition(f"/{command} ")[2].partition(" >>")[0])


def example_commands() -> list[list[str]]:
    arguments = [
        crontab_arguments("outbox-materialize"),
        *(
            shlex.split(unit(name)["Service"]["ExecStart"])[1:]
            for name in ("outbox-materialize.service", "outbox-materialize-continuous.service")
        ),
        cron_job()["template"]["spec"]["containers"][0]["args"],
        manifest("spark_application.yaml")["spec"]["template"]["arguments"],
        [*airflow()["COMMAND"][1:], "--aggregate", airflow()["TABLES"][0]],
    ]
    assert len(arguments) == len(FILES) - 1, "a timer has no command; every other example has one"
    return arguments


@pytest.mark.parametrize("arguments", [*guide_commands(), *example_commands()], ids=" ".join)
def test_accepts_every_command_line(arguments: list[str]) -> None:
    parser = _parser()
    _validate(parser, parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("command", "parser"), [("outbox-maintain", maintain._parser()), ("outbox-reconcile", reconcile._parser())]
)
def test_accepts_the_maintenance_commands(command: str, parser: argparse.ArgumentParser) -> None:
    assert parser.parse_args(crontab_arguments(command)).job


def test_guide_covers_every_scheduler() -> None:
    visible = {argument for arguments in guide_commands() for argument in arguments if argument.startswith("--")}
    assert visible >= {"--job", "--write-job", "--dry-run", "--interval", "--max-failures", "--metrics", "--output"}


def test_every_documented_option_exists() -> None:
    parsers = [_parser(), maintain._parser(), reconcile._parser()]
    known = {option for parser in parsers for action in parser._actions for option in action.option_strings}
    spark = {
        "--master",
        "--driver-memory",
        "--executor-memory",
        "--jars",
        "--py-files",
        "--deploy-mode",
        "--files",
        "--conf",
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", GUIDE + MONITORING))
    assert named <= known | spark


def test_guide_links_every_example() -> None:
    linked = set(re.findall(r"\(examples/([^)]+)\)", GUIDE + MONITORING))
    assert linked == {path.name for path in FILES}


def test_documented_command_runs(tmp_path: Path) -> None:
    """Run the command of the DAG with a job file whose target is unreachable."""
    down = job(PostgresTarget("127.0.0.1", 1, "d", "u", "p"), aggregate=airflow()["TABLES"][0])
    path = tmp_path / "job.json"
    path.write_text(as_text([down]))
    arguments = [str(path) if argument.endswith("job.json") else argument for argument in example_commands()[-1]]
    arguments = [str(tmp_path / "m.jsonl") if argument.endswith(".jsonl") else argument for argument in arguments]
    command = [sys.executable, "-m", "outbox_spark", *arguments, "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.FAILED
    assert "would fail" in done.stdout
    helped = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert (helped.returncode, helped.stderr) == (0, "")


# --- how schedulers handle exit codes


def test_examples_do_not_retry_permanent_errors() -> None:
    assert list(airflow()["NOT_RETRYABLE"]) == FATAL
    assert list(airflow()["SUCCESS"]) == [Exit.DONE]
    for name in ("outbox-materialize.service", "outbox-materialize-continuous.service"):
        service = unit(name)["Service"]
        assert service["RestartPreventExitStatus"].split() == [str(int(code)) for code in FATAL]
        assert service["Restart"] == "on-failure"
    rule = cron_job()["podFailurePolicy"]["rules"][0]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", FATAL)
    assert rule["onExitCodes"]["containerName"] == cron_job()["template"]["spec"]["containers"][0]["name"]
    # Kubernetes allows a podFailurePolicy only with this restart policy.
    assert cron_job()["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("code", list(Exit))
def test_cron_mails_permanent_errors(tmp_path: Path, code: Exit) -> None:
    line = crontab("outbox-materialize").partition("; ")[2]  # behind time, user and `set -a`
    command = re.sub(
        r"\S+/outbox-materialize", f"sh -c 'exit {code:d}'", line.replace("/etc/outbox/secrets.env", "/dev/null")
    )
    command = command.replace("/run/lock/outbox", str(tmp_path / "lock")).replace("/var/log/outbox", str(tmp_path))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert ("not retryable" in done.stdout, done.stderr) == (code not in (Exit.DONE, Exit.FAILED), "")


def minutes(span: str) -> int:
    assert span.endswith("min")
    return int(span.removesuffix("min"))


def test_systemd_does_not_count_successful_runs_as_retries() -> None:
    """The start limit also counts starts by the timer."""
    limits, service = (unit("outbox-materialize.service")[name] for name in ("Unit", "Service"))
    step = int(unit("outbox-materialize.timer")["Timer"]["OnCalendar"].removeprefix("*:0/"))
    tries = int(limits["StartLimitBurst"]) * minutes(service["RestartSec"])
    assert tries < minutes(limits["StartLimitIntervalSec"]) < step


def test_examples_that_start_spark_name_their_jars() -> None:
    container = cron_job()["template"]["spec"]["containers"][0]
    assert spark_session.JARS_VARIABLE in [item["name"] for item in container["env"]]
    assert spark_session.JARS_VARIABLE in airflow()["ENVIRONMENT"]
    for name in ("crontab", "outbox-materialize.service", "outbox-materialize-continuous.service"):
        assert re.search(
            rf"^(Environment=.* )?{spark_session.JARS_VARIABLE}=/", (EXAMPLES / name).read_text(), re.MULTILINE
        )


def test_examples_do_not_start_concurrent_runs() -> None:
    assert manifest("cronjob.yaml")["spec"]["concurrencyPolicy"] == "Forbid"
    assert manifest("spark_application.yaml")["spec"]["concurrencyPolicy"] == "Forbid"
    assert "flock -n" in crontab("outbox-materialize")
    assert "flock" in crontab("outbox-maintain")
    assert "max_active_runs=1" in (EXAMPLES / "airflow_dag.py").read_text()
    assert "Restart" not in unit("outbox-materialize.timer")["Timer"]


def test_continuous_unit_signals_only_the_command() -> None:
    assert unit("outbox-materialize-continuous.service")["Service"]["KillMode"] == "mixed"


def test_manifests_name_the_built_files() -> None:
    application = manifest("spark_application.yaml")["spec"]["template"]
    assert application["sparkVersion"].startswith(f"{SPARK_VERSION}.")
    assert application["deps"]["pyFiles"] == [f"local:///opt/outbox/{ZIP_NAME}"]
    assert application["mainApplicationFile"].endswith("/materialize.py")
    mounted = [m["name"] for m in cron_job()["template"]["spec"]["containers"][0]["volumeMounts"]]
    assert mounted == [volume["name"] for volume in cron_job()["template"]["spec"]["volumes"]]


# --- codes, versions and metrics in the guide


def test_table_of_exit_codes_is_complete() -> None:
    section = MONITORING.partition("## Exit codes")[2].partition("\n## ")[0]
    assert re.findall(r"^\| (\d+) \|", section, flags=re.MULTILINE) == [f"{code:d}" for code in Exit]


def test_documented_versions_equal_the_checked_versions() -> None:
    assert SUPPORTED_VERSIONS in GUIDE


def test_documented_metrics_line_has_the_written_keys() -> None:
    visible = json.loads(re.findall(r"```json\n(.*?)```", MONITORING, flags=re.DOTALL)[0])
    assert set(metrics._KEYS) == set(visible) - {"time", "event", "aggregate", "topic", "target", "table"}
    assert list(visible["spark"]) == list(METRIC_METHODS)
    assert f"`{OBSERVATION}`" in MONITORING
    assert f"`{JOB_GROUP_PREFIX}<topic>" in MONITORING
