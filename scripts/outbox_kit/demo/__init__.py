"""Run the worked example: workload, comparison of values, and report. Other packages do not import this package.

The workload uses the example service in docs/examples/book_management, which a checkout contains but a wheel does not.
"""

import sys
from pathlib import Path

from outbox_events.errors import ConfigurationError

SERVICE_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "book_management"

if not SERVICE_FOLDER.is_dir():
    raise ConfigurationError(f"folder {SERVICE_FOLDER} does not exist", "run `make demo` in a checkout of outbox-kit")
sys.path.append(str(SERVICE_FOLDER))
