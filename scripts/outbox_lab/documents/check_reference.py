"""Generated part of docs/verify.md: the checks, their time limits, and the remedies that tests run."""

from __future__ import annotations

from outbox_kit.connect.rest import VALIDATION_FACTOR
from outbox_kit.linting.rule_catalogue import RULES
from outbox_kit.linting.rules.unknown_keys import unknown_keys_rule
from outbox_kit.verification.progress_checks import GRACE_S
from outbox_kit.verification.run import READ_LIMIT_S
from outbox_lab.documents.check_catalogue import IDS, SECTIONS
from outbox_lab.documents.markdown import list_item, paragraph

LIMITS = (
    f"Each request waits at most {READ_LIMIT_S} s for a response, and the validation of the connector config, which "
    f"connects to the database, {READ_LIMIT_S * VALIDATION_FACTOR} s. Then the check of the system or of the endpoint "
    "fails, and states the request. The canary waits for `--canary-timeout`, and the checks of progress wait for two "
    f"heartbeats and {GRACE_S:g} s. The comparison of `--states` takes at most `--states-timeout`; after this time "
    "its checks are `unknown`."
)
RUN_REMEDIES = (
    "There are {} checks. For {} of them, a test makes the check fail, runs the commands of the remedy as printed, and "
    "then expects that the checks pass and that no row is missing. The remedies of the others are not run by a test:"
)
# Checks whose remedy a test runs as printed, after it has made the check fail: tests/integration/verification.
REMEDIES_RUN_BY_TESTS = frozenset(
    {
        "canary.delivered",
        "canary.record",
        "connect.config",
        "connect.connector",
        "connect.exactly-once",
        "connect.internal-topics",
        "connect.offsets",
        "connect.placeholders",
        "connect.running",
        "kafka.cleanup-policy",
        "kafka.dead-letters",
        "kafka.min-insync",
        "kafka.pending-backfill",
        "kafka.timestamp-limit",
        "kafka.topic-identity",
        "kafka.topic-settings",
        "kafka.topics",
        "path.offset-covers-slot",
        "path.offset-not-ahead",
        "path.partitions",
        "path.producer-gives-up",
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
# All other checks, by the reason why no test runs their remedy.
REMEDIES_NOT_RUN = {
    "The remedy is a value in the environment file or in the pipeline file": (
        "postgres.reachable",
        "postgres.primary",
        "kafka.reachable",
        "kafka.cluster",
        "registry.reachable",
        "connect.reachable",
        "connect.cluster",
        "states.compared",
    ),
    "The remedy is a change of the database server, or of its hardware": (
        "postgres.clock",
        "postgres.free-wal-senders",
        "postgres.slot-retained",
        "postgres.slot-failover",
    ),
    "The remedy is a change of the brokers": ("kafka.replication", "kafka.in-sync"),
    "The remedy is a change of the Connect workers: plugins, secrets or converters": (
        "connect.plugins",
        "connect.smt-version",
        "connect.workers",
        "connect.valid",
        "canary.partition",
        "canary.tombstone",
    ),
    "The remedy is a change of the service": (
        "postgres.partition-field",
        "states.equal",
    ),
    "Only an operator can decide which object is right: a slot, a connector, a login, another producer, a version of a "
    "schema, or the schemas of a registry": (
        "postgres.free-slots",
        "postgres.row-security",
        "kafka.open-transactions",
        "registry.schemas",
        "connect.exclusive",
        "states.schema-ids",
    ),
    "The remedy is a procedure with a second pipeline file, which a test of docs/operations.md runs": (
        "kafka.partitions",
        "kafka.keys-partition",
    ),
    "The check reports an effect. The check of its cause has the remedy": (
        "postgres.slot-moving",
        "kafka.heartbeat",
        "connect.offsets-moving",
        "connect.restarts",
        "canary.latency",
    ),
}


def checks() -> str:
    """Return the sections of all checks, in Markdown."""
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
    """Return one item for each rule, in Markdown."""
    return "".join(
        list_item(f"`{rule.id}` ({rule.severity}): {rule.condition}.") + list_item(f"Reason: {rule.reason}.", "  ")
        for rule in (*RULES, unknown_keys_rule(lambda _: ()))
    )
