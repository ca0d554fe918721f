"""Where an apply lets the connector begin, and what it does when that FAILED."""

from __future__ import annotations

import importlib

import pytest
from tests.unit.connect.samples import NOBODY, TRACE, listing, written
from tests.unit.deployment.samples import (
    NO_CONNECTOR,
    PLUGINS,
    STATUS,
    STOPPED,
    Deployed,
    Given,
    Serve,
    registered,
    service,
)
from tests.unit.postgres.samples import DEPLOYED
from tests.unit.support import Request

from outbox_kit.connect.state import seed_offset
from outbox_kit.deployment import apply
from outbox_kit.errors import RejectedError
from outbox_kit.pipeline import Lock

apply_module = importlib.import_module("outbox_kit.deployment.execution")
PATH = "/connectors/library-outbox"
SLOT_AT, SERVER_AT = seed_offset("16/B374D848"), DEPLOYED.wal_position
SEEDING = Request("PATCH", f"{PATH}/offsets", {"offsets": [{"partition": {"server": "library"}, "offset": SLOT_AT}]})
FAILED = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "FAILED", "trace": TRACE}]}
VALID = (200, {"configs": []})


def kept(lsn: int) -> dict[str, object]:
    """A position of Debezium's own."""
    return {"offsets": [{"partition": {"server": "library"}, "offset": {"lsn": lsn, "messageType": "INSERT"}}]}


@pytest.mark.parametrize(
    ("lsn", "update", "taken"),
    [
        (SERVER_AT, {}, False),
        (SLOT_AT["lsn"], {}, False),
        (SERVER_AT + 1, {}, True),
        (SLOT_AT["lsn"] - 1, {}, True),
        (SERVER_AT, {"unfinished": "recover"}, True),
        (SERVER_AT, {"config": None}, True),
    ],
    ids=["at the server", "at the slot", "beyond the server", "before the slot", "recovering", "first config"],
)
def test_what_a_deleted_connector_left_is_used_only_where_it_can_be(
    serve: Serve,
    deployed: Deployed,
    lock: Lock,
    given: Given,
    monkeypatch: pytest.MonkeyPatch,
    lsn: int,
    update: dict[str, object],
    taken: bool,
) -> None:
    """Deleted by REST, and the database restored since: from beyond the server rows are skipped in silence."""
    given(DEPLOYED)
    now = lock.model_copy(update={"config": {"a": "1"}, **update})
    deployed().write_lock(now)
    monkeypatch.setattr(apply_module, "prepare", lambda *_: now)
    planned = [NOBODY, NO_CONNECTOR, (200, PLUGINS)]
    connect = serve(
        [
            *planned,
            # A recovery stops the connector first, where there is one.
            *([NO_CONNECTOR] if "unfinished" in update else []),
            *planned,
            VALID,
            # Whether it is at rest, is asked only where nothing is unfinished.
            *([] if "unfinished" in update else [(404, {"message": "none"})]),
            (201, {}),
            (200, STOPPED),
            (200, kept(lsn)),
            *([(200, {})] if taken else []),
            (202, None),
            (200, STATUS),
        ]
    )
    apply(deployed(connect=service(connect), registry=service(serve(registered(lock)))), lambda _: None)
    writes = [request.method for request in connect.seen if request.path.startswith(PATH) and request.method != "GET"]
    assert (SEEDING in connect.seen, writes) == (taken, ["PATCH", "PUT"] if taken else ["PUT"])


def test_a_start_after_an_interruption_is_rolled_back_too(
    serve: Serve, deployed: Deployed, lock: Lock, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Config written, and interrupted before the resume: to start it is all that is left, and the config is bad."""
    given(DEPLOYED)
    config = written(deployed().render(lock))
    good = written({**deployed().render(lock), "poll.interval.ms": "77"})
    now = lock.model_copy(update={"config": good, "unfinished": "update"})
    deployed().write_lock(now)
    monkeypatch.setattr(apply_module, "prepare", lambda *_: now)
    planned = [listing(deployed().render(lock), STOPPED), (200, kept(SERVER_AT)), (200, PLUGINS)]
    connect = serve(
        [
            *planned,
            *planned,
            VALID,
            *((200, answer) for answer in (STOPPED, kept(SERVER_AT), None)),
            *((200, FAILED) for _ in range(5)),
            *((200, answer) for answer in (None, STOPPED, {}, None)),
            (200, STATUS),
        ]
    )
    assert config != good
    with pytest.raises(RejectedError, match="was put back and runs"):
        apply(deployed(connect=service(connect), registry=service(serve(registered(lock)))), lambda _: None)
    assert Request("PUT", f"{PATH}/config", good) in connect.seen
