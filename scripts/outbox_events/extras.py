"""Import names on first use, and raise an error that names the missing extra if the import of a package fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module

EXTRAS = {
    "confluent_kafka": "outbox-events[kafka]",
    "rbloom": "outbox-events[kafka]",
    "fastavro": "outbox-events[avro]",
    "requests": "outbox-events[avro]",
    "msgspec": "outbox-events[typed]",
    "opentelemetry": "outbox-events[otel]",
    "sqlalchemy": "outbox-events[sqlalchemy]",
}
"""Maps each package to the distribution and extra that install it."""


class MissingExtraError(ImportError):
    """A package that belongs to an extra is not installed."""


@contextmanager
def extra(requirement: str = "") -> Iterator[None]:
    """Raise MissingExtraError, which names the extra, if the block imports a package that is not installed.

    `requirement` is a distribution with an extra, such as outbox-events[kafka]. If it is empty, EXTRAS determines it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        requirement = requirement or EXTRAS.get(package, "")
        if not package or package.startswith("outbox_") or not requirement:
            raise
        command = f"pip install '/path/to/{requirement}'"
        message = f"{package} is not installed: run `{command}` with the path of a checkout or of a release's wheel"
        raise MissingExtraError(message, name=package) from error


def imported_on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package, which imports a name from its home, or a module that has this name.

    `homes` maps the names to modules of the package. The function raises MissingExtraError.
    """

    @cache
    def get(name: str) -> object:
        if name not in homes:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message)
        home = f"{package}.{homes[name]}"
        with extra():
            module = import_module(home)
            return getattr(module, name) if hasattr(module, name) else import_module(f"{home}.{name}")

    return get
