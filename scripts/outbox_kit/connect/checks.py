"""What `outbox verify` checks in Kafka Connect."""

from __future__ import annotations

from dataclasses import dataclass

from outbox_kit import __version__
from outbox_kit.connect.lifecycle import is_running, root_cause
from outbox_kit.connect.state import INSTALL, State, different_keys, is_in, missing_plugins
from outbox_kit.connect.verify_queries import Observed, Worker
from outbox_kit.rules import Finding, Rule, Severity, rule

EXACTLY_ONCE = "exactly.once.support"
OURS = "io.outboxkit."
NONE_THERE = "no connector"


@dataclass(frozen=True)
class Look:
    """Everything that the checks of Connect look at; `cluster` is the Kafka cluster that the kit itself sees."""

    name: str
    desired: dict[str, str]
    observed: Observed
    wanted_state: State
    exactly_once: str
    cluster: str | None


RULES: list[Rule[Look]] = []


@rule(
    RULES,
    "connect.reachable",
    guards="Kafka Connect answers",
    remedy="check connect.url in the environment file; is a worker up?",
)
def _reachable(look: Look) -> Finding:
    return Finding(True, f"{len(look.observed.versions)} plugins", "an answer")


@rule(
    RULES,
    "connect.cluster",
    guards="the workers write to the Kafka cluster that the kit looks at",
    remedy="connect.url and kafka.bootstrap_servers name two different clusters",
)
def _cluster(look: Look) -> Finding:
    if look.cluster is None:
        return Finding(None, "Kafka does not answer", "the same cluster")
    return Finding(look.observed.cluster == look.cluster, look.observed.cluster, look.cluster)


@rule(
    RULES,
    "connect.plugins",
    guards="every class that the config names is installed",
    remedy=INSTALL,
)
def _plugins(look: Look) -> Finding:
    missing = missing_plugins(look.desired, list(look.observed.versions))
    expected = "every class that the config names"
    return Finding(not missing, f"missing: {', '.join(missing)}" if missing else "all installed", expected)


@rule(
    RULES,
    "connect.smt-version",
    guards="the worker's transforms are of this kit's version: they understand the config that it renders",
    remedy=INSTALL,
    severity=Severity.WARNING,
)
def _smt_version(look: Look) -> Finding:
    used = {value for key, value in look.desired.items() if key.endswith(".type") and value.startswith(OURS)}
    found = {look.observed.versions[name] for name in used if name in look.observed.versions}
    if not found:
        return Finding(None if used else True, "none installed" if used else "none used", __version__)
    return Finding(found == {__version__}, ", ".join(sorted(found)), __version__)


@rule(
    RULES,
    "connect.workers",
    guards="every worker has the plugins, in one and the same version: the task may start on any of them",
    remedy=f"{INSTALL}; the REST API answers for one worker only, so each is asked",
)
def _workers(look: Look) -> Finding:
    expected = "every worker as the one that answers"
    if not look.observed.workers:
        return Finding(None, "no worker is listed", expected, "list every worker in connect.workers")
    wrong = [words for worker in look.observed.workers if (words := _worker_problem(look, worker))]
    remedy = "; ".join(dict.fromkeys(worker.hint for worker in look.observed.workers if worker.hint))
    return Finding(not wrong, "; ".join(wrong) or f"all {len(look.observed.workers)}", expected, remedy)


def _worker_problem(look: Look, worker: Worker) -> str:
    if worker.error:
        return worker.error
    if worker.cluster and worker.cluster != look.observed.cluster:
        return f"{worker.url} works for Kafka cluster {worker.cluster}, not {look.observed.cluster}"
    here = missing_plugins(look.desired, list(look.observed.versions))
    missing = [name for name in missing_plugins(look.desired, list(worker.versions)) if name not in here]
    if missing:
        return f"{worker.url} lacks {', '.join(missing)}"
    classes = set(look.desired.values()) & look.observed.versions.keys()
    other = sorted(name for name in classes if worker.versions.get(name) != look.observed.versions[name])
    return f"{worker.url} has another version of {', '.join(other)}" if other else ""


@rule(
    RULES,
    "connect.connector",
    guards="the connector exists",
    remedy="run `outbox apply`",
)
def _connector(look: Look) -> Finding:
    there = look.observed.actual.config is not None
    return Finding(there, look.name if there else f"no connector {look.name}", look.name)


@rule(
    RULES,
    "connect.running",
    guards="connector and task are RUNNING; the root cause of a failure is shown",
    remedy="FAILED: mend the cause, then restart; PAUSED or STOPPED: resume; see docs/operations.md",
)
def _running(look: Look) -> Finding:
    expected = "connector RUNNING, every task RUNNING"
    actual = look.observed.actual
    if actual.config is None:
        return Finding(None, NONE_THERE, expected)
    status = actual.status
    seen = status.words if status else "no status yet"
    if status and status.traces:
        seen = f"{seen}; {root_cause(status.traces)}"
    if look.wanted_state != "running" and status is not None:
        return Finding(is_in(look.wanted_state, status), seen, f"connector {look.wanted_state.upper()}")
    return Finding(is_running(status), seen, expected)


@rule(
    RULES,
    "connect.config",
    guards="the connector runs what the files say",
    remedy="run `outbox apply`",
)
def _config(look: Look) -> Finding:
    config = look.observed.actual.config
    if config is None:
        return Finding(None, NONE_THERE, "as rendered from the files")
    keys = different_keys(look.desired, config)
    return Finding(not keys, f"differs in {', '.join(keys)}" if keys else "as rendered", "as rendered from the files")


@rule(
    RULES,
    "connect.valid",
    guards="the worker accepts the live config and can log in to the database with it",
    remedy="correct what the worker names; its secrets may have changed since it started",
)
def _valid(look: Look) -> Finding:
    found = look.observed.validation
    if found is None:
        return Finding(None, NONE_THERE, "no error")
    errors = {key: words for key, words in found.errors.items() if key != EXACTLY_ONCE}
    return Finding(not errors, "; ".join(f"{key}: {' '.join(errors[key])}" for key in errors) or "no error", "no error")


@rule(
    RULES,
    "connect.placeholders",
    guards="the worker resolves every `${...}`: one that it does not know stays as it is, without an error",
    remedy="check name, path and the provider's allow-list on the worker",
)
def _placeholders(look: Look) -> Finding:
    found = look.observed.validation
    if found is None:
        return Finding(None, NONE_THERE, "all resolved")
    keys = ", ".join(found.unresolved)
    return Finding(not keys, f"not resolved: {keys}" if keys else "all resolved", "all resolved")


@rule(
    RULES,
    "connect.exactly-once",
    guards="the worker supports exactly-once for this connector, and the connector asks for it as the files say",
    remedy="set exactly.once.source.support=enabled on every worker; run `outbox apply`",
)
def _exactly_once(look: Look) -> Finding:
    config, found = look.observed.actual.config, look.observed.validation
    if config is None or found is None:
        return Finding(None, NONE_THERE, look.exactly_once)
    seen = config.get(EXACTLY_ONCE, "not asked for")
    refused = found.errors.get(EXACTLY_ONCE, [])
    return Finding(seen == look.exactly_once and not refused, "; ".join([seen, *refused]), look.exactly_once)


@rule(
    RULES,
    "connect.exclusive",
    guards="no other connector of this Connect cluster uses the slot, the publication or the topic prefix",
    remedy="two connectors on one slot lose rows to each other: delete the one, or give it names of its own",
)
def _exclusive(look: Look) -> Finding:
    sharing = look.observed.sharing
    return Finding(not sharing, "; ".join(sharing) or "alone", "alone on its slot, publication and prefix")


@rule(
    RULES,
    "connect.offsets",
    guards="the connector knows where it stands: without an offset a restart can skip rows",
    remedy="without one, a restart can skip rows: stop the connector and run `outbox apply`",
)
def _offsets(look: Look) -> Finding:
    expected = "an offset with an lsn"
    if look.observed.actual.config is None:
        return Finding(None, NONE_THERE, expected)
    offsets = [entry["offset"] for entry in look.observed.actual.offsets if entry.get("offset")]
    positions = [offset.get("lsn") for offset in offsets]
    seen = f"lsn {positions[0]}" if positions else "no offset"
    return Finding(any(position is not None for position in positions), seen, expected)
