"""Makes the roles and databases of the stack that are missing: what the service `databases` runs before the others."""

from __future__ import annotations

import os

import psycopg

from outbox_kit.stack.databases import Logins, create_databases

CONNECT_SECONDS = 10


def main() -> None:
    """Log in as administrator: the connection is that of libpq's own variables (PGHOST, PGPASSWORD, ...)."""
    passwords = {
        f"{name}_password": os.environ[f"{name.upper()}_PASSWORD"] for name in ("connector", "materializer", "registry")
    }
    logins = Logins(admin_user=os.environ["PGUSER"], **passwords)
    with psycopg.connect(connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
        create_databases(connection, logins)


if __name__ == "__main__":
    main()
