"""Settings of the service, from environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]
Connection = psycopg.Connection[Row]


@dataclass(frozen=True)
class Settings:
    """Addresses of the systems that the service uses."""

    database: str = field(repr=False)
    kafka: str
    registry: str
    deposits: str

    @classmethod
    def from_environment(cls) -> Settings:
        """Read DATABASE_URL, KAFKA, REGISTRY_URL and DEPOSITS_URL."""
        return cls(
            database=os.environ["DATABASE_URL"],
            kafka=os.environ["KAFKA"],
            registry=os.environ["REGISTRY_URL"],
            deposits=os.environ["DEPOSITS_URL"],
        )

    def connect(self) -> Connection:
        """Open a connection whose rows are dictionaries, as `emit` accepts them."""
        return psycopg.connect(self.database, row_factory=dict_row)
