"""Roll back to the last working config after the connector FAILED with a new config."""

from __future__ import annotations

import re

from outbox_events.errors import RejectedError
from outbox_kit.connect.client import ConnectClient
from outbox_kit.connect.config_diff import different_keys, short_fingerprint
from outbox_kit.connect.lifecycle import STABILITY_S, FailedError, put_config, stop, wait_for_state, wait_stopped
from outbox_kit.connect.state import State, epoch
from outbox_kit.connect.write_requests import send_request
from outbox_kit.results import Reporter

# Keys whose change makes the stored offset invalid.
OFFSET_KEYS = re.compile(r"topic\.prefix|slot\.name|database\.(hostname|port|dbname)")
APPLY_AGAIN_HINT = "fix the cause, then run `outbox apply` again"


def roll_back(
    client: ConnectClient,
    name: str,
    failure: FailedError,
    *,
    config: dict[str, str],
    last_working: dict[str, str] | None,
    progress: Reporter,
    state: State = "running",
    stability_seconds: float = STABILITY_S,
) -> RejectedError:
    """Replace the `config` that caused `failure` with `last_working`, and enter `state`. Return the error to raise.

    Slot and offsets are retained, so no row is lost. The connector is left STOPPED with the new config if no config has
    worked before, if the last working config has an earlier source epoch (sinks would ignore the connector's records),
    or if its OFFSET_KEYS differ. If the two configs are equal, nothing is changed. Raises WaitTimeoutError.
    """
    if last_working is not None and not different_keys(last_working, config):
        return failure
    reason = _reason_unusable(last_working, config)
    if last_working is None or reason:
        stop(client, name, progress=progress)
        return RejectedError(f"{failure.message}; {reason}, so the connector is left STOPPED", APPLY_AGAIN_HINT)
    fingerprint = short_fingerprint(last_working)
    progress(f"{failure.message}; rolling back to the last working config ({fingerprint})")
    stop(client, name, progress=progress)
    put_config(client, name, last_working, progress)
    outcome = f"{failure.message}; rolled back to the last working config ({fingerprint})"
    try:
        if state == "stopped":
            wait_stopped(client, name)
        else:
            request = client.resume if state == "running" else client.pause
            send_request(lambda: request(name), progress)
            wait_for_state(client, name, state=state, stability_seconds=stability_seconds)
    except FailedError as second_failure:
        hint = "look for a cause outside the config: see docs/incidents.md, failed task"
        return RejectedError(f"{outcome}, but the connector FAILED again: {second_failure.message}", hint)
    return RejectedError(f"{outcome}; the connector is {state.upper()}", APPLY_AGAIN_HINT)


def _reason_unusable(last_working: dict[str, str] | None, config: dict[str, str]) -> str:
    """Return why the connector must not run with the last working config; an empty string if the config is usable."""
    if last_working is None:
        return "no earlier config has run"
    if epoch(last_working) != epoch(config):
        return "the last working config has an earlier source epoch"
    keys = [key for key in different_keys(last_working, config) if OFFSET_KEYS.fullmatch(key)]
    return f"the last working config has a different {', '.join(keys)}" if keys else ""
