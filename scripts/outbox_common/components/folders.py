"""Find the folder of the components: in a checkout those of `make setup`, otherwise the downloaded ones."""

from __future__ import annotations

import os
from pathlib import Path

from outbox_common.components import manifest

CHECKOUT = Path(__file__).resolve().parents[3]
"""Root of the checkout, or of something else if outbox-kit was installed from a wheel."""


def is_checkout(folder: Path = CHECKOUT) -> bool:
    return (folder / "Makefile").is_file() and (folder / "compose" / "runtime").is_dir()


def runtime_folder() -> Path:
    """Return the folder that contains a folder for each component."""
    return CHECKOUT / "build" / "runtime" if is_checkout() else cache_folder()


def cache_folder() -> Path:
    """Return the folder of the downloaded components. Another manifest has another folder."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification ignores a relative path. expanduser() returns "~" if there is no home.
    cache = configured if configured.is_absolute() else Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
    return cache / "outbox-kit" / "components" / manifest.digest()
