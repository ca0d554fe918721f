"""Generate random values for the example library. Many of them are difficult to convert correctly."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from random import Random

from book_management.tables import Author, Book

TEXTS = (
    "The Left Hand of Darkness",
    "Сто лет одиночества",
    "紅樓夢 📚 第一回",
    "\u202bשלום עולם\u202c",  # noqa: RUF001  (right to left, on purpose)
    "Zoe\u0308 and Zo\u00eb",  # two names that look the same but have different code points
    'He said "it\'s" \\ and left',
    "C:\\new\\table \\N \\u0041 \\.",
    "tab\there, line\nbreak, carriage\r\nreturn, \x01 \x7f",
    "\u2028 \ufeff \ufffd \U0010ffff",
    "  surrounded by blanks  ",
    "{} [] null NaN ; -- %s ${env:HOME}",
    "long " * 400,
)
PRICES = tuple(map(Decimal, ("9999999999.99", "-9999999999.99", "-0.01", "0.00", "0.01", "0.1", "12", "1E+3")))
# All days are in full years of the Gregorian calendar, because Java, Spark and Parquet read earlier days differently.
DAYS = (
    date(1583, 1, 1),
    date(1900, 2, 28),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(9999, 12, 31),
)
COUNTRIES = ("BR", "GB", "JP", "US", None)
STATUSES = ("AVAILABLE", "LENT", "LOST")
PAGES = (0, 1, 2**31 - 1, -(2**31), None)

EDGE_CASE_SHARE = 0.25  # share of the generated values


def text(rng: Random) -> str:
    """Return a title or a name that is not empty."""
    if rng.random() < EDGE_CASE_SHARE:
        return rng.choice(TEXTS)
    prefix = rng.choice(("On", "Against", "Beyond", "A History of"))
    return f"{prefix} {rng.choice(TEXTS[:3])}, {rng.randrange(10_000)}"


def price(rng: Random) -> Decimal:
    """Return a price that fits into numeric(12, 2)."""
    return rng.choice(PRICES) if rng.random() < EDGE_CASE_SHARE else Decimal(rng.randrange(100, 20_000)).scaleb(-2)


def day(rng: Random) -> date | None:
    """Return a day from 1583 to 9999, or None."""
    if rng.random() < EDGE_CASE_SHARE:
        return rng.choice((*DAYS, None))
    return date(1800, 1, 1) + timedelta(days=rng.randrange(80_000))


def texts(rng: Random) -> list[str]:
    """Return a list of zero, one or three texts. Each text can be empty."""
    return [rng.choice((*TEXTS[:-1], "", "fiction", "history", "poetry")) for _ in range(rng.choice((0, 0, 1, 3)))]


def author(rng: Random) -> Author:
    return Author(text(rng), rng.choice(COUNTRIES), day(rng), texts(rng))


def book(rng: Random) -> Book:
    return Book(
        title=text(rng),
        subtitle=rng.choice((None, "", text(rng))),
        tags=texts(rng),
        price=price(rng),
        published_on=day(rng),
        status=rng.choice(STATUSES),
        pages=rng.choice(PAGES) if rng.random() < EDGE_CASE_SHARE else rng.randrange(1, 2000),
    )
