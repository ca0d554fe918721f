"""Check Kafka Connect for `outbox verify`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from outbox_events.errors import OutboxError, UnreachableError
from outbox_kit import __version__
from outbox_kit.connect.client import root_cause
from outbox_kit.connect.config_diff import different_keys
from outbox_kit.connect.foreign_changes import harmful_foreign_keys
from outbox_kit.connect.lifecycle import has_failed, is_running, status_text
from outbox_kit.connect.rest import path_segment
from outbox_kit.connect.state import INSTALL_HINT, LOST_LOCK_HINT, State, epoch, is_in_state, missing_plugins
from outbox_kit.connect.verify_queries import Endpoint, ObservedConnect, Worker
from outbox_kit.results.checks import Check, Finding, Rules, Severity
from outbox_kit.results.repair_commands import RESEND_HINT

EXACTLY_ONCE = "exactly.once.support"
KIT_PACKAGE = "io.outboxkit."
NO_CONNECTOR = "no connector"
DEBEZIUM_PACKAGE = "io.debezium."
# Earlier releases can skip events when a task restarts: a COMMIT in PostgreSQL 17 can have the LSN of the next
# transaction (debezium/debezium#7760), and rows of one COPY or INSERT can have the same LSN (debezium/debezium#7531).
MIN_DEBEZIUM = (3, 7)
# Maps each check to the endpoints that it needs. If an endpoint fails, the first check that needs it reports this.
ENDPOINTS: dict[str, tuple[Endpoint, ...]] = {
    "connect.cluster": ("worker",),
    "connect.plugins": ("plugins",),
    "connect.smt-version": ("plugins",),
    "connect.debezium-version": ("plugins",),
    "connect.workers": ("worker", "plugins"),
    "connect.connector": ("connectors",),
    "connect.running": ("connectors",),
    "connect.config": ("connectors",),
    "connect.valid": ("connectors", "validation"),
    "connect.placeholders": ("connectors", "validation"),
    "connect.exactly-once": ("connectors", "validation"),
    "connect.exclusive": ("connectors",),
    "connect.offsets": ("connectors", "offsets"),
}
UNREAD_REMEDY = (
    "if the worker has just started, run the command again; otherwise see the checks kafka.topics and "
    "connect.internal-topics, then the log of the Connect worker"
)


@dataclass(frozen=True)
class ConnectState:
    """Input of the checks. `cluster_id` is the id that kafka.bootstrap_servers report; None if Kafka is down.

    `last_working` is the lock file's config. `resend_steps` contains the commands that send the states again.
    """

    name: str
    desired: dict[str, str]
    observed: ObservedConnect
    desired_state: State
    exactly_once: str
    cluster_id: str | None
    last_working: dict[str, str] | None = None
    resend_steps: str = RESEND_HINT


RULES = Rules[ConnectState]()


@RULES.rule(
    "connect.reachable",
    condition="Kafka Connect responds",
    remedy="check connect.url in the environment file, and that a worker is running",
)
def _reachable(live: ConnectState) -> Finding:
    versions = live.observed.versions
    return Finding(True, f"{len(versions)} plugins" if versions else "a response", "a response")


@RULES.rule(
    "connect.cluster",
    condition="the Connect worker uses the Kafka cluster to which kafka.bootstrap_servers belongs",
    remedy="correct connect.url or kafka.bootstrap_servers in the environment file, so that both belong to one cluster",
)
def _cluster(live: ConnectState) -> Finding:
    if live.cluster_id is None:
        return Finding(None, "Kafka does not respond", "the cluster of kafka.bootstrap_servers")
    return Finding(live.observed.cluster_id == live.cluster_id, live.observed.cluster_id, live.cluster_id)


@RULES.rule("connect.plugins", condition="every class that the config names is on the worker", remedy=INSTALL_HINT)
def _plugins(live: ConnectState) -> Finding:
    missing = missing_plugins(live.desired, list(live.observed.versions))
    actual = f"not installed: {', '.join(missing)}" if missing else "every class is installed"
    return Finding(not missing, actual, "every class that the config names")


@RULES.rule(
    "connect.smt-version",
    condition="outbox-kit's transforms on the worker have the same version as outbox-kit, which renders their config",
    remedy="on every worker, install the outbox-smt version that matches outbox-kit; then restart the workers; "
    "see docs/smt.md",
    severity=Severity.WARNING,
)
def _smt_version(live: ConnectState) -> Finding:
    classes = {value for key, value in live.desired.items() if key.endswith(".type") and value.startswith(KIT_PACKAGE)}
    versions = {live.observed.versions[name] for name in classes if name in live.observed.versions}
    if not versions:
        return Finding(None if classes else True, "not installed" if classes else "not in the config", __version__)
    return Finding(versions == {__version__}, ", ".join(sorted(versions)), __version__)


@RULES.rule(
    "connect.debezium-version",
    condition=f"Debezium on every worker is {MIN_DEBEZIUM[0]}.{MIN_DEBEZIUM[1]} or later; an earlier version can skip "
    "events when the task restarts",
    remedy="on every worker, install Debezium's PostgreSQL connector 3.7.0 or later and restart the workers; then run "
    "`outbox stuck --resend`, which sends the states again that a restart has skipped",
)
def _debezium_version(live: ConnectState) -> Finding:
    name, expected = live.desired.get("connector.class", ""), f"{MIN_DEBEZIUM[0]}.{MIN_DEBEZIUM[1]} or later"
    if not name.startswith(DEBEZIUM_PACKAGE):
        return Finding(True, "not in the config", expected)
    plugins = {"": live.observed.versions} | {f" on {worker.url}": worker.versions for worker in live.observed.workers}
    versions = {f"{found[name]}{place}": _release(found[name]) for place, found in plugins.items() if name in found}
    old = [text for text, release in versions.items() if release and release < MIN_DEBEZIUM]
    if not old and not (versions and all(versions.values())):
        return Finding(None, ", ".join(versions) or "not installed", expected)
    return Finding(not old, ", ".join(old or versions), expected)


def _release(version: str) -> tuple[int, int] | None:
    """Return the major and minor number of a version such as 3.7.0.Final; None if it has another form."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


@RULES.rule(
    "connect.workers",
    condition="every worker has the same plugin versions, because the task can start on any worker",
    remedy="on every worker, install the same plugin versions; then restart the workers; see docs/smt.md",
)
def _workers(live: ConnectState) -> Finding:
    expected = "the same plugins on every worker"
    if not live.observed.workers:
        return Finding(None, "no worker is listed", expected, "list every worker in connect.workers")
    problems = [text for worker in live.observed.workers if (text := _worker_problem(live, worker))]
    remedy = "; ".join(dict.fromkeys(worker.hint for worker in live.observed.workers if worker.hint))
    return Finding(not problems, "; ".join(problems) or "no difference", expected, remedy)


def _worker_problem(live: ConnectState, worker: Worker) -> str:
    if worker.error:
        return worker.error
    if worker.cluster_id and worker.cluster_id != live.observed.cluster_id:
        return f"{worker.url} uses Kafka cluster {worker.cluster_id}, not {live.observed.cluster_id}"
    missing_everywhere = missing_plugins(live.desired, list(live.observed.versions))
    missing = [name for name in missing_plugins(live.desired, list(worker.versions)) if name not in missing_everywhere]
    if missing:
        return f"{worker.url} lacks {', '.join(missing)}"
    classes = set(live.desired.values()) & live.observed.versions.keys()
    different_classes = sorted(name for name in classes if worker.versions.get(name) != live.observed.versions[name])
    return f"{worker.url} has another version of {', '.join(different_classes)}" if different_classes else ""


@RULES.rule("connect.connector", condition="the connector exists", remedy="run `outbox apply`")
def _connector(live: ConnectState) -> Finding:
    exists = live.observed.actual.config is not None
    return Finding(exists, live.name if exists else f"no connector {live.name}", live.name)


@RULES.rule(
    "connect.running",
    condition="the connector is in the state that connector.state declares; if `running`, all its tasks are RUNNING",
    remedy="if FAILED, fix the cause and run `outbox restart`; otherwise run `outbox apply`; see docs/incidents.md",
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
    remedy = "fix the cause, then run `outbox restart`" if status and has_failed(status) else "run `outbox apply`"
    if live.desired_state != "running" and status is not None:
        return Finding(is_in_state(live.desired_state, status), text, f"connector {live.desired_state.upper()}", remedy)
    return Finding(is_running(status), text, expected, remedy)


@RULES.rule(
    "connect.config",
    condition="the connector has the config rendered from the files",
    remedy="run `outbox apply`; if another tool changed a key that can drop, change or reorder records, then run "
    f"{RESEND_HINT}",
)
def _config(live: ConnectState) -> Finding:
    config = live.observed.actual.config
    if config is None:
        return Finding(None, NO_CONNECTOR, "the config rendered from the files")
    keys = different_keys(live.desired, config)
    actual = f"differs in {', '.join(keys)}" if keys else "no difference"
    harmful_keys = harmful_foreign_keys(live.desired, config, live.last_working)
    remedy = "run `outbox apply`"
    if epoch(config) > epoch(live.desired) > 0:
        remedy = LOST_LOCK_HINT
    elif harmful_keys:
        names = ", ".join(harmful_keys)
        remedy = f"{remedy}; then, because another tool changed {names}, {live.resend_steps}"
    return Finding(not keys, actual, "the config rendered from the files", remedy)


@RULES.rule(
    "connect.valid",
    condition="the worker accepts the live config, and can log in to the database with this config",
    remedy="correct the reported keys and run `outbox apply`; or, if a key has a placeholder, correct the secret on "
    "the worker and run `outbox restart`",
)
def _valid(live: ConnectState) -> Finding:
    validation = live.observed.validation
    if validation is None:
        return Finding(None, NO_CONNECTOR, "no error")
    errors = {key: texts for key, texts in validation.errors.items() if key != EXACTLY_ONCE}
    return Finding(not errors, "; ".join(f"{key}: {' '.join(errors[key])}" for key in errors) or "no error", "no error")


@RULES.rule(
    "connect.placeholders",
    condition="the worker resolves every `${...}`; an unresolved placeholder remains in the value without an error",
    remedy="correct the placeholder's name and path, or allow them in the provider's settings on the worker; then run "
    "`outbox restart`; if the rendered config has no such placeholder, run `outbox apply`",
)
def _placeholders(live: ConnectState) -> Finding:
    if live.observed.validation is None:
        return Finding(None, NO_CONNECTOR, "all resolved")
    keys, config = live.observed.validation.unresolved_keys, live.observed.actual.config or {}
    actual = f"not resolved: {', '.join(keys)}" if keys else "all resolved"
    differs = all(config.get(key) != live.desired.get(key) for key in keys)
    return Finding(not keys, actual, "all resolved", "run `outbox apply`" if differs else "")


@RULES.rule(
    "connect.exactly-once",
    condition="the worker supports exactly-once for this connector, and exactly.once.support has the configured value",
    remedy="set exactly.once.source.support=enabled on every worker, and then run `outbox apply`",
)
def _exactly_once(live: ConnectState) -> Finding:
    config, validation = live.observed.actual.config, live.observed.validation
    if config is None or validation is None:
        return Finding(None, NO_CONNECTOR, live.exactly_once)
    actual = config.get(EXACTLY_ONCE, "not set")
    errors = validation.errors.get(EXACTLY_ONCE, [])
    remedy = "" if errors else "run `outbox apply`"
    passed = actual == live.exactly_once and not errors
    return Finding(passed, "; ".join([actual, *errors]), live.exactly_once, remedy)


@RULES.rule(
    "connect.exclusive",
    condition="no other connector of this Connect cluster uses the slot, the publication, the topic prefix or a topic",
    remedy="delete the other connector, or give it its own slot, publication, prefix and topics; then run "
    "`outbox backfill --restart`, then `outbox stuck --resend`, because connectors that share a slot miss rows, and "
    "states from another database may have replaced this pipeline's states on the topics",
)
def _exclusive(live: ConnectState) -> Finding:
    observed, steps = live.observed, list[str]()
    problems = [entry.text for entry in observed.shared]
    problems += [f"connector {name!r} also belongs to this pipeline" for name in observed.orphans]
    for name in dict.fromkeys(entry.other_connector for entry in observed.shared):
        command = f"`curl -X DELETE {observed.url}/connectors/{path_segment(name)}` (with the credentials of Connect)"
        steps.append(f"if {name} is not needed, run {command}; otherwise give it other names of slot and topics")
    steps += [f'run `outbox apply --allow "connector {name}"`, which deletes {name}' for name in observed.orphans]
    remedy = "; ".join([*steps, f"then {live.resend_steps}"])
    expected = "exclusive slot, publication, prefix and topics"
    return Finding(not problems, "; ".join(problems) or "no conflict", expected, remedy)


@RULES.rule(
    "connect.offsets",
    condition="Connect has stored an offset for the connector; a connector that restarts without one can skip rows",
    remedy="run `outbox stop`, then `outbox apply`, which stores an offset",
)
def _offsets(live: ConnectState) -> Finding:
    expected = "an offset with an lsn"
    if live.observed.actual.config is None:
        return Finding(None, NO_CONNECTOR, expected)
    offsets = [entry["offset"] for entry in live.observed.actual.offsets if entry.get("offset")]
    lsns = [offset.get("lsn") for offset in offsets]
    actual = f"lsn {lsns[0]}" if lsns else "no offset"
    return Finding(any(lsn is not None for lsn in lsns), actual, expected)


def check(live: ConnectState) -> list[Check]:
    """Evaluate the rules. If an endpoint was not read, the first check that needs it fails, the others are unknown."""
    reporting_ids: dict[Endpoint, str] = {}
    checks: list[Check] = []
    for rule in RULES:
        endpoint = next((name for name in ENDPOINTS.get(rule.id, ()) if name in live.observed.errors), None)
        if endpoint is None:
            checks += rule.checks(live)
        elif endpoint in reporting_ids:
            checks.append(rule.check(Finding(None, f"see {reporting_ids[endpoint]}", rule.condition)))
        else:
            reporting_ids[endpoint] = rule.id
            checks.append(rule.check(_unread_finding(live.observed.errors[endpoint])))
    return checks


def _unread_finding(error: OutboxError) -> Finding:
    """Return the finding for an endpoint that failed although the worker responds to other requests."""
    has_own_hint = error.hint and not isinstance(error, UnreachableError)
    return Finding(False, error.message, "a response", error.hint if has_own_hint else UNREAD_REMEDY, Severity.ERROR)
