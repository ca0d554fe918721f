"""Generate the parts of docs/verify.md that list the checks, their time limits, and the remedies that tests run."""

from __future__ import annotations

from outbox_kit.connect.rest import VALIDATION_FACTOR
from outbox_kit.linting.rule_catalogue import RULES
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule
from outbox_kit.verification.progress_checks import GRACE_S
from outbox_kit.verification.run import READ_LIMIT_S
from outbox_lab.documents.check_catalogue import IDS, SECTIONS
from outbox_lab.documents.markdown import list_item, paragraph

LIMITS = (
    f"Each request waits at most {READ_LIMIT_S} s for a response. The limit is {READ_LIMIT_S * VALIDATION_FACTOR} s "
    "for the validation of the connector config, because the validation connects to the database. If there is no "
    "response within this time, the check of the system or endpoint fails and reports the request. The canary waits "
    f"for `--canary-timeout`. The progress checks wait for two heartbeats and another {GRACE_S:g} s. If the "
    "comparison of states (`--states`) takes longer than `--states-timeout`, its checks are `unknown`."
)
RUN_REMEDIES = (
    "There are {} checks. For {} of them, a test makes the check fail, runs the remedy's commands as printed, and then "
    "verifies that all checks pass and that no row is missing. Tests do not run the remedies of the other checks:"
)
# Checks that tests in tests/integration/verification make fail and then repair by running the remedy as printed.
REMEDIES_RUN_BY_TESTS = frozenset(
    {
        "canary.delivered",
        "canary.record",
        "connect.config",
        "connect.connector",
        "connect.exactly-once",
        "connect.exclusive",
        "connect.internal-topics",
        "connect.offsets",
        "connect.placeholders",
        "connect.running",
        "kafka.cleanup-policy",
        "kafka.dead-letters",
        "kafka.min-insync",
        "kafka.pending-backfill",
        "kafka.source-sequence",
        "kafka.timestamp-limit",
        "kafka.topic-identity",
        "kafka.topic-settings",
        "kafka.topics",
        "kafka.unclean-election",
        "path.empty-topics",
        "path.interrupted",
        "path.offset-covers-slot",
        "path.offset-not-ahead",
        "path.partitions",
        "path.producer-gives-up",
        "path.recent-rows",
        "path.record-size",
        "path.schema-ids",
        "path.unread-slots",
        "path.wal-sender-timeout",
        "postgres.connector-role",
        "postgres.identity",
        "postgres.idle-slot-timeout",
        "postgres.key-not-empty",
        "postgres.not-null",
        "postgres.other-tables",
        "postgres.prepared-transactions",
        "postgres.publication",
        "postgres.publication-filter",
        "postgres.publication-older-than-slot",
        "postgres.row-sequence",
        "postgres.rules",
        "postgres.slot",
        "postgres.slot-active",
        "postgres.slot-identity",
        "postgres.slot-wal",
        "postgres.table",
        "postgres.table-identity",
        "postgres.triggers",
        "postgres.wal-level",
        "registry.compatibility",
        "registry.ids",
        "states.complete",
        "states.dead-letters",
    }
)
# Mapping from each reason why tests do not run a remedy to the checks to which the reason applies.
REMEDIES_NOT_RUN = {
    "The remedy changes a value in the environment file or in the pipeline file": (
        "postgres.reachable",
        "postgres.primary",
        "kafka.reachable",
        "kafka.cluster",
        "registry.reachable",
        "connect.reachable",
        "connect.cluster",
        "states.compared",
    ),
    "The remedy changes the database server or its hardware": (
        "postgres.clock",
        "postgres.free-wal-senders",
        "postgres.slot-retained",
    ),
    "A test runs the remedy's statement on a separate server": ("postgres.slot-failover",),
    "The remedy changes the brokers": ("kafka.replication", "kafka.in-sync"),
    "The remedy changes plugins, secrets or converters of the Connect workers": (
        "connect.plugins",
        "connect.smt-version",
        "connect.debezium-version",
        "connect.workers",
        "connect.valid",
        "canary.partition",
        "canary.tombstone",
    ),
    "The remedy changes the service": (
        "postgres.partition-field",
        "states.equal",
    ),
    "Only an operator can decide which slot, connector, login, producer, schema version or registry schema is "
    "correct": (
        "postgres.free-slots",
        "postgres.row-security",
        "kafka.open-transactions",
        "registry.schemas",
        "states.schema-ids",
    ),
    "The remedy is a procedure with a second pipeline file. A test of docs/planned-changes.md runs this procedure": (
        "kafka.partitions",
        "kafka.keys-partition",
    ),
    "The check reports a symptom. The remedy belongs to the check that reports the cause": (
        "postgres.slot-moving",
        "kafka.heartbeat",
        "connect.offsets-moving",
        "connect.restarts",
        "canary.latency",
    ),
    "A test runs the same remedy for kafka.source-sequence": ("states.source-sequence",),
}


def checks() -> str:
    """Return Markdown sections that describe all checks."""
    sections = [f"## Time limits\n\n{paragraph(LIMITS)}"]
    for title, rules in SECTIONS:
        items = [
            list_item(f"`{rule.id}` ({rule.severity}): {rule.condition}.")
            + list_item(f"When it fails: {rule.remedy}.", "  ")
            for rule in rules
        ]
        sections.append(f"## {title}\n\n{''.join(items)}")
    return "\n".join([*sections, _remedies_section()])


def _remedies_section() -> str:
    counts = paragraph(RUN_REMEDIES.format(len(IDS), len(REMEDIES_RUN_BY_TESTS)))
    items = [
        list_item(f"{reason}: {', '.join(f'`{name}`' for name in names)}.")
        for reason, names in REMEDIES_NOT_RUN.items()
    ]
    return f"## Remedies that are run by tests\n\n{counts}\n{''.join(items)}"


def rules() -> str:
    """Return a Markdown list with one item for each lint rule."""
    return "".join(
        list_item(f"`{rule.id}` ({rule.severity}): {rule.condition}.") + list_item(f"Reason: {rule.reason}.", "  ")
        for rule in (*RULES, unknown_keys_rule(lambda _: ()))
    )
