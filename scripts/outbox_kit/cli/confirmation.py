"""Questions before a change. Each question names the environment, the database and the Kafka cluster."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Annotated

import typer

from outbox_common.error_text import one_line
from outbox_events.errors import ConfigurationError, OutboxError, RefusedError
from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_message
from outbox_kit.cli.options import CommonOptions
from outbox_kit.deployment import Deployment
from outbox_kit.operations import misplaced_states, preconditions
from outbox_kit.operations.misplaced_states import MisplacedStates

ConfirmOption = Annotated[
    str | None,
    typer.Option(
        "--confirm", metavar="PIPELINE@ENVIRONMENT", help="Skip confirmation, for example library@production."
    ),
]

MaxDeletionsOption = Annotated[
    str,
    typer.Option(
        "--max-deletions",
        metavar="LIMIT",
        help="Limit the tombstones per topic to a number, or to a percentage of its states.",
    ),
]


def confirm(common: CommonOptions, deployment: Deployment, action: str, *, hint: str) -> None:
    """Ask whether to do `action`, unless --yes is given. Exit with ERROR if the user declines.

    Raises ConfigurationError if there is no terminal.
    """
    if common.yes:
        return
    _require_terminal("--yes", hint)
    if not typer.confirm(one_line(f"{action} in {describe_environment(deployment)}?"), err=True):
        raise typer.Exit(exit_codes.ERROR)


def confirm_names(deployment: Deployment, action: str, *, hint: str) -> None:
    """Ask for the names of pipeline and environment before `action`.

    Raises RefusedError for other names, and ConfigurationError if there is no terminal.
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
    """Show the tombstones that a command would write for the `keys` by aggregate type, and ask whether to write them.

    Return their keys by type. `limit` is the value of --max-deletions. With `exact`, the keys are those of records.
    Raises RefusedError if the tombstones exceed the limit.
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
    """Show the tombstones that a command would write into wrong partitions, and ask whether to write them.

    Raises RefusedError if the tombstones exceed the limit, or if the latest states would not follow them.
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
    """Return the text that confirms a command: PIPELINE@ENVIRONMENT. A pipeline has one name in all environments."""
    return f"{deployment.pipeline.name}@{deployment.environment.name}"


def require_names(deployment: Deployment, text: str) -> None:
    """Raise RefusedError if `text`, from --confirm or a prompt, does not confirm pipeline and environment."""
    expected = confirmed_names(deployment)
    if text != expected:
        message = f"the text to confirm is {expected!r} (pipeline and environment), not {text!r}; nothing was changed"
        raise RefusedError(message, "check -p, -e and the variables OUTBOX_PIPELINE and OUTBOX_ENVIRONMENT")


def describe_environment(deployment: Deployment) -> str:
    """Return the environment, the address of its database, and the id of its Kafka cluster."""
    source = deployment.environment.source
    return (
        f"environment {deployment.environment.name} (database {source.database} at {source.host}:{source.port}, "
        f"Kafka cluster {_cluster(deployment)})"
    )


def _cluster(deployment: Deployment) -> str:
    try:
        return deployment.kafka.cluster_id()
    except OutboxError:  # a change of the database alone does not need Kafka
        return f"at {deployment.environment.kafka.bootstrap_servers}, id unknown"


def _require_terminal(option: str, hint: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{option} is required: stdin is not a terminal", hint)
