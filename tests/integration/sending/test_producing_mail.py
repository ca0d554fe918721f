"""Proof of delivery with a receiver without transactions: a mail can arrive twice, but is never missing."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from outbox_events import delivery_proof

pytestmark = pytest.mark.integration

CHILD = Path(__file__).with_name("mail_sender.py")


class Mailbox:
    """Message ids of the mails that the server has accepted."""

    def __init__(self) -> None:
        self.message_ids: list[str] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        del server, session
        assert isinstance(envelope.content, bytes)
        self.message_ids += re.findall(r"<(.*)@library.example>", envelope.content.decode())
        return "250 OK"


@pytest.fixture
def mailbox(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """Start a mail server, and create the tables of the sender."""
    with psycopg.connect(dsn) as connection:
        connection.execute("drop table if exists purchase, unproven_record")
        connection.execute("create table purchase (id text primary key)")
        connection.execute(delivery_proof.create_table_sql())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    monkeypatch.setenv("DSN", dsn)
    monkeypatch.setenv("SMTP_PORT", str(port))
    yield mailbox
    controller.stop()


def run_child(*arguments: str, code: int = 0) -> None:
    command = [sys.executable, str(CHILD), *arguments]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("point", "mails_before", "mails_after"),
    [("none", 1, 1), ("before-database", 0, 0), ("after-database", 0, 1), ("after-mail", 1, 2)],
)
def test_mail_is_sent_again_until_its_acceptance_is_proven(
    dsn: str, mailbox: Mailbox, point: str, mails_before: int, mails_after: int
) -> None:
    event_id = str(uuid4())
    run_child(point, event_id, code=0 if point == "none" else 9)
    assert mailbox.message_ids == [event_id] * mails_before
    run_child("resend")
    run_child("resend")
    assert mailbox.message_ids == [event_id] * mails_after
    with psycopg.connect(dsn) as connection:
        [purchases, rows] = connection.execute(
            "select (select count(*) from purchase), (select count(*) from unproven_record)"
        ).fetchall()[0]
    assert (purchases, rows) == (min(mails_after, 1), 0)
