"""The service that the demo runs exists only in a checkout."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from outbox_events.errors import ConfigurationError
from outbox_kit import demo


def test_names_the_folder_that_an_installation_without_checkout_does_not_have(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "site-packages" / "outbox_kit" / "demo"
    package.mkdir(parents=True)
    shutil.copy(demo.__file__, package)
    with pytest.raises(ConfigurationError) as caught:
        runpy.run_path(str(package / "__init__.py"))
    assert str(tmp_path) in caught.value.message
    assert "make demo" in str(caught.value.hint)
