"""Exceptions of a service whose truth value is not true, after which psycopg alone would not roll back."""

from __future__ import annotations

import psycopg


class EmptyError(Exception):
    """An exception whose truth value is false."""

    def __len__(self) -> int:
        return 0


class EmptyRollback(psycopg.Rollback):
    """psycopg's exception with a truth value that is false."""

    def __len__(self) -> int:
        return 0


class InvalidError(Exception):
    """An exception whose `__len__` raises an error, so that it has no truth value."""

    def __len__(self) -> int:
        raise AttributeError("errors")
