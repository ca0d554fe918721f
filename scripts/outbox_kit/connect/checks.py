"""Checks of `outbox verify` on Kafka Connect."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit import __version__
from outbox_kit.connect.config_diff import different_keys
from outbox_kit.connect.lifecycle import is_running, status_text
from outbox_kit.connect.state import INSTALL_HINT, State, is_in_state, missing_plugins
from outbox_kit.connect.task_errors import root_cause
from outbox_kit.connect.verify_queries import ObservedConnect, Worker
from outbox_kit.rules import Finding, Rules, Severity

EXACTLY_ONCE = "exactly.once.support"
KIT_PACKAGE = "io.outboxkit."
NO_CONNECTOR = "no connector"


@dataclass(frozen=True)
class ConnectState:
    """Input of the checks; `cluster` is the id of the Kafka cluster of the environment file."""

    name: str
    desired: dict[str, str]
    observed: ObservedConnect
    desired_state: State
    exactly_once: str
    cluster: str | None


RULES = Rules[ConnectState]()


@RULES.rule(
    "connect.reachable",
    condition="Kafka Connect responds",
    remedy="check connect.url in the environment file, and that a worker is running",
)
def _reachable(live: ConnectState) -> Finding:
    return Finding(True, f"{len(live.observed.versions)} plugins", "a response")


@RULES.rule(
    "connect.cluster",
    condition="the workers use the Kafka cluster of the environment file",
    remedy="connect.url and kafka.bootstrap_servers belong to different clusters: correct one of them",
)
def _cluster(live: ConnectState) -> Finding:
    if live.cluster is None:
        return Finding(None, "Kafka does not respond", "the same cluster")
    return Finding(live.observed.cluster == live.cluster, live.observed.cluster, live.cluster)


@RULES.rule("connect.plugins", condition="every class that the config names is installed", remedy=INSTALL_HINT)
def _plugins(live: ConnectState) -> Finding:
    missing = missing_plugins(live.desired, list(live.observed.versions))
    expected = "every class that the config names"
    return Finding(not missing, f"missing: {', '.join(missing)}" if missing else "all installed", expected)


@RULES.rule(
    "connect.smt-version",
    condition="the worker's transforms have the same version as outbox-kit, which renders their config",
    remedy=INSTALL_HINT,
    severity=Severity.WARNING,
)
def _smt_version(live: ConnectState) -> Finding:
    types = {value for key, value in live.desired.items() if key.endswith(".type") and value.startswith(KIT_PACKAGE)}
    versions = {live.observed.versions[name] for name in types if name in live.observed.versions}
    if not versions:
        return Finding(None if types else True, "none installed" if types else "none used", __version__)
    return Finding(versions == {__version__}, ", ".join(sorted(versions)), __version__)


@RULES.rule(
    "connect.workers",
    condition="every worker has the plugins in the same version: the task may start on any worker",
    remedy=f"{INSTALL_HINT}, on each worker",
)
def _workers(live: ConnectState) -> Finding:
    expected = "the same plugins on every worker"
    if not live.observed.workers:
        return Finding(None, "no worker is listed", expected, "list every worker in connect.workers")
    problems = [text for worker in live.observed.workers if (text := _worker_problem(live, worker))]
    remedy = "; ".join(dict.fromkeys(worker.hint for worker in live.observed.workers if worker.hint))
    return Finding(not problems, "; ".join(problems) or f"all {len(live.observed.workers)}", expected, remedy)


def _worker_problem(live: ConnectState, worker: Worker) -> str:
    if worker.error:
        return worker.error
    if worker.cluster and worker.cluster != live.observed.cluster:
        return f"{worker.url} uses Kafka cluster {worker.cluster}, not {live.observed.cluster}"
    missing_everywhere = missing_plugins(live.desired, list(live.observed.versions))
    missing = [name for name in missing_plugins(live.desired, list(worker.versions)) if name not in missing_everywhere]
    if missing:
        return f"{worker.url} lacks {', '.join(missing)}"
    classes = set(live.desired.values()) & live.observed.versions.keys()
    different = sorted(name for name in classes if worker.versions.get(name) != live.observed.versions[name])
    return f"{worker.url} has a different version of {', '.join(different)}" if different else ""


@RULES.rule("connect.connector", condition="the connector exists", remedy="run `outbox apply`")
def _connector(live: ConnectState) -> Finding:
    exists = live.observed.actual.config is not None
    return Finding(exists, live.name if exists else f"no connector {live.name}", live.name)


@RULES.rule(
    "connect.running",
    condition="connector and task are RUNNING; a failure is shown with its root cause",
    remedy="FAILED: fix the cause, then `outbox restart`; PAUSED or STOPPED: `outbox resume`; see docs/operations.md",
)
def _running(live: ConnectState) -> Finding:
    expected = "connector RUNNING, every task RUNNING"
    actual = live.observed.actual
    if actual.config is None:
        return Finding(None, NO_CONNECTOR, expected)
    status = actual.status
    text = status_text(status)
    if status and status.traces:
        text = f"{text}; {root_cause(status.traces)}"
    if live.desired_state != "running" and status is not None:
        return Finding(is_in_state(live.desired_state, status), text, f"connector {live.desired_state.upper()}")
    return Finding(is_running(status), text, expected)


@RULES.rule(
    "connect.config", condition="the connector has the config rendered from the files", remedy="run `outbox apply`"
)
def _config(live: ConnectState) -> Finding:
    config = live.observed.actual.config
    if config is None:
        return Finding(None, NO_CONNECTOR, "as rendered from the files")
    keys = different_keys(live.desired, config)
    return Finding(not keys, f"differs in {', '.join(keys)}" if keys else "as rendered", "as rendered from the files")


@RULES.rule(
    "connect.valid",
    condition="the worker accepts the live config, and can log in to the database with this config",
    remedy="fix the reported errors; secrets may have changed since the worker started",
)
def _valid(live: ConnectState) -> Finding:
    validation = live.observed.validation
    if validation is None:
        return Finding(None, NO_CONNECTOR, "no error")
    errors = {key: texts for key, texts in validation.errors.items() if key != EXACTLY_ONCE}
    return Finding(not errors, "; ".join(f"{key}: {' '.join(errors[key])}" for key in errors) or "no error", "no error")


@RULES.rule(
    "connect.placeholders",
    condition="the worker resolves every `${...}`: an unresolved placeholder stays in the value, without an error",
    remedy="check name and path in the placeholder, and the provider's allow-list on the worker",
)
def _placeholders(live: ConnectState) -> Finding:
    validation = live.observed.validation
    if validation is None:
        return Finding(None, NO_CONNECTOR, "all resolved")
    keys = ", ".join(validation.unresolved)
    return Finding(not keys, f"not resolved: {keys}" if keys else "all resolved", "all resolved")


@RULES.rule(
    "connect.exactly-once",
    condition="the worker supports exactly-once for this connector, and exactly.once.support is set as in the files",
    remedy="set exactly.once.source.support=enabled on every worker; run `outbox apply`",
)
def _exactly_once(live: ConnectState) -> Finding:
    config, validation = live.observed.actual.config, live.observed.validation
    if config is None or validation is None:
        return Finding(None, NO_CONNECTOR, live.exactly_once)
    actual = config.get(EXACTLY_ONCE, "not set")
    errors = validation.errors.get(EXACTLY_ONCE, [])
    return Finding(actual == live.exactly_once and not errors, "; ".join([actual, *errors]), live.exactly_once)


@RULES.rule(
    "connect.exclusive",
    condition="no other connector of this Connect cluster uses the slot, the publication or the topic prefix",
    remedy="two connectors on one slot both miss rows: delete one connector, or change its slot, publication, prefix",
)
def _exclusive(live: ConnectState) -> Finding:
    conflicts = live.observed.conflicts
    return Finding(not conflicts, "; ".join(conflicts) or "exclusive", "exclusive slot, publication and prefix")


@RULES.rule(
    "connect.offsets",
    condition="the connector has a stored offset: without an offset a restart can skip rows",
    remedy="stop the connector and run `outbox apply`, which stores an offset",
)
def _offsets(live: ConnectState) -> Finding:
    expected = "an offset with an lsn"
    if live.observed.actual.config is None:
        return Finding(None, NO_CONNECTOR, expected)
    offsets = [entry["offset"] for entry in live.observed.actual.offsets if entry.get("offset")]
    positions = [offset.get("lsn") for offset in offsets]
    actual = f"lsn {positions[0]}" if positions else "no offset"
    return Finding(any(position is not None for position in positions), actual, expected)
