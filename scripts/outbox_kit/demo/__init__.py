"""The worked example: workload, comparison of values, report. Other packages do not import it.

The workload runs the example service docs/examples/book_management of the checkout, which no wheel contains.
"""

import sys
from pathlib import Path

from outbox_events.errors import ConfigurationError

SERVICE_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "book_management"

if not SERVICE_FOLDER.is_dir():
    raise ConfigurationError(f"no example service at {SERVICE_FOLDER}", "run `make demo` in a checkout of outbox-kit")
sys.path.append(str(SERVICE_FOLDER))
