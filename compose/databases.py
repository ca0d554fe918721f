"""Creates missing roles and databases of the stack, as the service `databases`, before other services start."""

from __future__ import annotations

import os
import sys

import psycopg

from outbox_kit.stack.services.databases import Logins, create_databases

CONNECT_SECONDS = 10
LOGIN_HINT = (
    "ADMIN_PASSWORD in compose/.env differs from the password that the volume was created with: restore the earlier "
    "compose/.env, or delete the data with `make down PURGE=1`"
)


def main() -> None:
    """Connect as administrator, with the variables of libpq (PGHOST, PGPASSWORD, ...)."""
    passwords = {
        f"{name}_password": os.environ[f"{name.upper()}_PASSWORD"] for name in ("connector", "materializer", "registry")
    }
    logins = Logins(admin_user=os.environ["PGUSER"], **passwords)
    try:
        with psycopg.connect(connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
            create_databases(connection, logins)
    except psycopg.OperationalError as error:
        hint = (
            LOGIN_HINT
            if "password authentication failed" in str(error)
            else "run `make ps`: is the service postgres healthy?"
        )
        sys.exit(f"error: PostgreSQL: {' '.join(str(error).split())}\nhint:  {hint}")


if __name__ == "__main__":
    main()
