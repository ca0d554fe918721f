"""`outbox verify`: compare the live state with the lock, pipeline and environment files. Only the canary is written."""

from outbox_kit.verification.report import FORMAT, Report, StatusChanges, to_html, to_json, to_junit
from outbox_kit.verification.run import verify
from outbox_kit.verification.state_checks import comparison_of

__all__ = [
    "FORMAT",
    "Report",
    "StatusChanges",
    "comparison_of",
    "to_html",
    "to_json",
    "to_junit",
    "verify",
]
