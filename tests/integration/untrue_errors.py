"""Exceptions of a service whose truth value is not true, after which psycopg alone would not roll back."""

from __future__ import annotations


class EmptyError(Exception):
    """An exception whose truth value is false."""

    def __len__(self) -> int:
        return 0


class InvalidError(Exception):
    """An exception whose `__len__` raises an error, so that it has no truth value."""

    def __len__(self) -> int:
        raise AttributeError("errors")
