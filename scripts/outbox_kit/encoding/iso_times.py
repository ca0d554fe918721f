"""Parse dates, times and timestamps in the ISO 8601 formats that OutboxRouter accepts (docs/smt-payloads.md)."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

NANOS = 1_000_000_000
SECONDS_PER_DAY = 86_400
MAX_OFFSET_HOURS = 18
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
EPOCH = date(1970, 1, 1).toordinal()

DATE = r"(?P<year>[0-9]{4,6})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?"
OFFSET = r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2}))?)"
DATE_FORM = re.compile(DATE)
TIME_FORM = re.compile(TIME)
LOCAL_FORM = re.compile(f"{DATE}[Tt ]{TIME}")
TIMESTAMP_FORM = re.compile(f"{DATE}[Tt ]{TIME}{OFFSET}")


def days(text: str) -> int | None:
    """Return a date as days since 1970-01-01, or None if the text is not valid."""
    match = DATE_FORM.fullmatch(text)
    return None if match is None else _days(match)


def nanos_of_day(text: str) -> int | None:
    """Return a time of day as nanoseconds since midnight, or None if the text is not valid."""
    match = TIME_FORM.fullmatch(text)
    return None if match is None else _nanos(match)


def local_nanos(text: str) -> int | None:
    """Return a timestamp without UTC offset as nanoseconds since 1970-01-01, or None if the text is not valid."""
    match = LOCAL_FORM.fullmatch(text)
    return None if match is None else _sum(_days(match), _nanos(match), 0)


def utc_nanos(text: str) -> int | None:
    """Return a timestamp with UTC offset as nanoseconds since 1970-01-01 UTC, or None if the text is not valid."""
    match = TIMESTAMP_FORM.fullmatch(text)
    return None if match is None else _sum(_days(match), _nanos(match), _offset_seconds(match))


def _sum(day: int | None, nanos: int | None, offset: int | None) -> int | None:
    if day is None or nanos is None or offset is None:
        return None
    return (day * SECONDS_PER_DAY - offset) * NANOS + nanos


def _days(match: re.Match[str]) -> int | None:
    year, month, day = (int(match[name]) for name in ("year", "month", "day"))
    # Python's dates are limited to the years 1 to 9999, but the calendar repeats every 400 years.
    cycles, year_of_cycle = divmod(year, CYCLE_YEARS)
    proxy_year = year_of_cycle + CYCLE_YEARS
    if not 1 <= month <= 12 or not 1 <= day <= monthrange(proxy_year, month)[1]:  # noqa: PLR2004 - months of a year
        return None
    return date(proxy_year, month, day).toordinal() - EPOCH + (cycles - 1) * CYCLE_DAYS


def _nanos(match: re.Match[str]) -> int | None:
    hour, minute, second = (int(match[name]) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004 - limits of the clock
        return None
    return (hour * 3600 + minute * 60 + second) * NANOS + int((match["fraction"] or "").ljust(9, "0"))


def _offset_seconds(match: re.Match[str]) -> int | None:
    if match["sign"] is None:
        return 0
    hours, minutes = int(match["hours"]), int(match["minutes"] or 0)
    if hours > MAX_OFFSET_HOURS or minutes > 59:  # noqa: PLR2004 - limits of the clock
        return None
    return (hours * 3600 + minutes * 60) * (-1 if match["sign"] == "-" else 1)
