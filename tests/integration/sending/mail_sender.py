"""Child process that buys something and mails a receipt, and exits abruptly at a named point.

    python mail_sender.py POINT EVENT_ID    POINT is before-database, after-database, after-mail or none
    python mail_sender.py resend            send the mails whose acceptance is not proven

DSN and SMTP_PORT are environment variables.
"""

from __future__ import annotations

import os
import smtplib
import sys
from email.message import EmailMessage

import psycopg

from outbox_events import DeliveryProof
from outbox_events.kafka.record import Record

CRASH_CODE = 9
PROOF = DeliveryProof()


def reach(point: str) -> None:
    if point == sys.argv[1]:
        os._exit(CRASH_CODE)


def send_mails(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Send every mail whose acceptance is not proven. Delete a row after the server has accepted its mail."""
    records = PROOF.unproven(connection, min_age_s=0)
    with smtplib.SMTP("127.0.0.1", int(os.environ["SMTP_PORT"])) as server:
        for record in records:
            headers = dict(record.headers)
            message = EmailMessage()
            message["From"], message["To"] = "shop@library.example", record.key.decode()
            message["Message-ID"] = f"<{headers['event_id'].decode()}@library.example>"
            message.set_content((record.value or b"").decode())
            server.send_message(message)
            reach("after-mail")
            PROOF.delete(connection, [headers["event_id"].decode()])
            connection.commit()


with psycopg.connect(os.environ["DSN"]) as connection:
    if sys.argv[1] != "resend":
        event_id = sys.argv[2]
        connection.execute("insert into purchase values (%s)", [event_id])
        receipt = Record("mail", b"reader@library.example", b"Thank you.", (("event_id", event_id.encode()),))
        PROOF.save(connection, [receipt])
        reach("before-database")
        connection.commit()
        reach("after-database")
    send_mails(connection)
