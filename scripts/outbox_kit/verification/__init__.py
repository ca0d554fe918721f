"""`outbox verify`: is what was deployed still so, and does a row arrive?"""

from outbox_kit.verification.html import to_html
from outbox_kit.verification.junit import to_junit
from outbox_kit.verification.report import FORMAT, Report, to_json
from outbox_kit.verification.run import verify
from outbox_kit.verification.status_changes import Drift

__all__ = ["FORMAT", "Drift", "Report", "to_html", "to_json", "to_junit", "verify"]
