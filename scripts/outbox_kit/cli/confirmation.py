"""Ask the user for confirmation. Each prompt names the environment and its database, Kafka cluster and registry."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Annotated

import typer

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_message, waiting
from outbox_kit.cli.options import CommonOptions
from outbox_kit.deployment import Deployment
from outbox_kit.operations import misplaced_states, preconditions
from outbox_kit.operations.misplaced_states import MisplacedStates

ConfirmOption = Annotated[
    str | None,
    typer.Option(
        "--confirm", metavar="PIPELINE@ENVIRONMENT", help="Confirm without a prompt, for example library@production."
    ),
]

MaxDeletionsOption = Annotated[
    str,
    typer.Option(
        "--max-deletions",
        metavar="LIMIT",
        help="Limit the tombstones per topic to a number, or to a percentage of the topic's states.",
    ),
]


def confirm(common: CommonOptions, deployment: Deployment | None, action: str, *, hint: str) -> None:
    """Ask whether to do `action`, unless --yes is given. Exit with ERROR if the user declines.

    `deployment` is None if the action only affects this machine. Raises ConfigurationError if stdin is not a terminal.
    """
    if common.yes:
        return
    _require_terminal("--yes", hint)
    place = f" in {describe_environment(deployment)}" if deployment else ""
    if not typer.confirm(one_line(f"{action}{place}?"), err=True):
        raise typer.Exit(exit_codes.ERROR)


def confirm_names(deployment: Deployment, action: str, *, hint: str) -> None:
    """Ask the user to enter the names of the pipeline and the environment before `action`.

    Raises RefusedError if the user enters different names, and ConfigurationError if stdin is not a terminal.
    """
    expected = confirmed_names(deployment)
    _require_terminal("--confirm PIPELINE@ENVIRONMENT", f"{hint}, then add --confirm {expected}")
    question = f"{action} in {describe_environment(deployment)}? To confirm, enter {expected}"
    require_names(deployment, typer.prompt(one_line(question), err=True))


def confirm_tombstones(
    common: CommonOptions,
    deployment: Deployment,
    keys: Mapping[str, Collection[str]],
    limit: str,
    *,
    exact: bool = False,
) -> dict[str, tuple[str, ...]]:
    """Show the tombstones that a command would write for `keys`, and ask whether to write them.

    `keys` and the returned mapping contain the keys for each aggregate type. `limit` is the value of --max-deletions.
    If `exact` is true, `keys` contains unnormalized record keys. Raises RefusedError if there are too many tombstones.
    """
    maximum = parse_limit(limit)
    deletions = preconditions.read_allowed_deletions(deployment, keys, maximum, print_message, exact=exact)
    if deletions:
        for entry in deletions:
            print_message(entry.text)
        action = f"Write {plural(sum(len(entry.keys) for entry in deletions), 'tombstone')}"
        confirm(common, deployment, action, hint="check the tombstones listed above, then add --yes")
    return {entry.aggregate_type: entry.keys for entry in deletions}


def confirm_misplaced(
    common: CommonOptions, deployment: Deployment, found: Collection[MisplacedStates], limit: str
) -> None:
    """Show the tombstones that a command would write for states in wrong partitions, and ask whether to write them.

    Raises RefusedError if there are too many tombstones, or if the latest states would not be sent after them.
    """
    misplaced_states.refuse_unsafe(deployment, found, parse_limit(limit))
    for states in found:
        print_message(states.text)
    if found:
        action = f"Write {plural(sum(len(states.places) for states in found), 'tombstone')} directly to Kafka"
        confirm(common, deployment, action, hint="check the tombstones listed above, then add --yes")


def parse_limit(text: str) -> preconditions.DeletionLimit:
    """Parse the value of --max-deletions. Raises BadParameter."""
    try:
        return preconditions.DeletionLimit.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--max-deletions") from None


def confirmed_names(deployment: Deployment) -> str:
    """Return the confirmation text, PIPELINE@ENVIRONMENT. A pipeline has the same name in all environments."""
    return f"{deployment.pipeline.name}@{deployment.environment.name}"


def require_names(deployment: Deployment, text: str) -> None:
    """Raise RefusedError if `text`, from --confirm or a prompt, does not name this pipeline and environment."""
    expected = confirmed_names(deployment)
    if text != expected:
        message = f"expected {expected!r} (pipeline and environment), found {text!r}; nothing was changed"
        raise RefusedError(message, "check -p, -e and the variables OUTBOX_PIPELINE and OUTBOX_ENVIRONMENT")


def describe_environment(deployment: Deployment) -> str:
    """Return the environment, the addresses of its database and registry, and the id of its Kafka cluster."""
    source = deployment.environment.source
    return (
        f"environment {deployment.environment.name} (database {source.database} at {source.host}:{source.port}, "
        f"Kafka cluster {_cluster(deployment)}, registry {deployment.registry.url})"
    )


def _cluster(deployment: Deployment) -> str:
    try:
        return deployment.kafka.cluster_id()
    except OutboxError:  # a change that only affects the database does not need Kafka
        return f"at {deployment.environment.kafka.bootstrap_servers}, id unknown"


def _require_terminal(option: str, hint: str) -> None:
    waiting.start("")  # the prompt follows
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{option} is required: stdin is not a terminal", hint)
