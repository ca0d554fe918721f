"""Puts the last good config back after a new one FAILED."""

from __future__ import annotations

import re

from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import short_fingerprint
from outbox_kit.connect.confirmed_writes import sent
from outbox_kit.connect.lifecycle import STABILITY_S, FailedError, put_config, stop, wait_running, wait_stopped
from outbox_kit.connect.state import State, different_keys, epoch
from outbox_kit.errors import RejectedError
from outbox_kit.progress import Progress

# Under another value of these the offsets, or the position that they name, are others.
POSITIONED = re.compile(r"topic\.prefix|slot\.name|database\.(hostname|port|dbname)")
MEND = "mend the cause, then run `outbox apply` again"


def put_back(
    client: ConnectClient,
    name: str,
    failure: FailedError,
    *,
    config: dict[str, str],
    last_good: dict[str, str] | None,
    progress: Progress,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> RejectedError:
    """Bring `last_good`, not the `config` that ended in `failure`, into `state`; returns the error that tells the end.

    Rows that were written meanwhile are read then: slot and offsets stay. Without a config to go back to, the connector
    is left STOPPED with the new one: a first config has none, under one of an earlier source epoch every sink would
    ignore what it writes, and one of another slot, prefix or database would go on at another position. Where the
    failing config is the last good one itself, something else is broken, and nothing is touched. Raises
    WaitTimeoutError.
    """
    if last_good is not None and not different_keys(last_good, config):
        return failure
    why = _no_way_back(last_good, config)
    if last_good is None or why:
        stop(client, name, progress=progress)
        return RejectedError(f"{failure.message}; {why}, so the connector is left STOPPED", MEND)
    mark = short_fingerprint(last_good)
    progress(f"{failure.message}; put the last good config back ({mark})")
    stop(client, name, progress=progress)
    put_config(client, name, last_good, progress)
    try:
        ending = _enter(client, name, state, progress, stability_seconds)
    except FailedError as again:
        message = f"{failure.message}; the last good config ({mark}) was put back, and FAILED too"
        return RejectedError(f"{message}: {again.message}", "the cause is not in the config: see docs/operations.md")
    return RejectedError(f"{failure.message}; the last good config ({mark}) was put back and {ending}", MEND)


def _no_way_back(last_good: dict[str, str] | None, config: dict[str, str]) -> str:
    """Why the last good config must not run, in words; empty: it may."""
    if last_good is None:
        return "no earlier config has run"
    if epoch(last_good) != epoch(config):
        return "the last good config is of an earlier source epoch"
    moved = [key for key in different_keys(last_good, config) if POSITIONED.fullmatch(key)]
    return f"the last good config has another {', '.join(moved)}" if moved else ""


def _enter(client: ConnectClient, name: str, state: State, progress: Progress, stability_seconds: float) -> str:
    """From STOPPED into the declared state, which is returned in words. Raises FailedError, WaitTimeoutError."""
    if state == "stopped":
        wait_stopped(client, name)
        return "is STOPPED"
    go = client.resume if state == "running" else client.pause
    sent(lambda: go(name), progress)
    wait_running(client, name, state=state, stability_seconds=stability_seconds)
    return "runs" if state == "running" else "is PAUSED"
