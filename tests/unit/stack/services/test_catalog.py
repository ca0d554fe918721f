from __future__ import annotations

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit.stack.services.catalog import SERVICES, STOP_ORDER, needs_java, select_services


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        (None, ("postgres", "kafka", "registry", "connect")),
        (("postgres",), ("postgres",)),
        (("registry",), ("postgres", "registry")),
        (("connect", "postgres"), ("postgres", "kafka", "connect")),
    ],
)
def test_selecting_a_service_includes_its_requirements(
    names: tuple[str, ...] | None, selected: tuple[str, ...]
) -> None:
    assert select_services(names) == selected


@pytest.mark.parametrize(
    ("names", "message"), [(("zookeeper", "kafka"), "unknown service: zookeeper"), ((), "no service was named")]
)
def test_rejects_invalid_selections(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        select_services(names)


def test_postgresql_alone_needs_no_java() -> None:
    assert not needs_java(("postgres",))
    assert needs_java(("postgres", "kafka"))


def test_services_stop_before_their_requirements() -> None:
    position = {name: index for index, names in enumerate(STOP_ORDER) for name in names}
    assert set(position) == set(SERVICES)
    assert all(position[name] < position[needed] for name, service in SERVICES.items() for needed in service.requires)
