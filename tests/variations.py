"""Choose which cases of a parametrized test run in `make test`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def variations(
    cases: Iterable[Any], key: Callable[[Any], Hashable] = lambda _: None, name: Callable[[Any], str] | None = None
) -> list[Any]:
    """Return parameters with the ids that `name` returns. Of the cases with one `key`, all but the first are `long`."""
    seen: set[Hashable] = set()
    parameters = []
    for case in cases:
        marks = [pytest.mark.long] if key(case) in seen else []
        seen.add(key(case))
        values = case if isinstance(case, tuple) else (case,)
        parameters.append(pytest.param(*values, id=name(case) if name else None, marks=marks))
    return parameters
