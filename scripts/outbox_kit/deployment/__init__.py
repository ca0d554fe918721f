"""Plan, apply and destroy: from the files to a running pipeline, and back."""

from outbox_kit.deployment.apply import apply, prepare
from outbox_kit.deployment.context import Deployment, deployment_of, open_deployment, render_files, render_sql
from outbox_kit.deployment.destroy import Flags, Removal, destroy, plan_destroy
from outbox_kit.deployment.document import read_plan, to_document
from outbox_kit.deployment.model import SYSTEMS, Plan, RollOut
from outbox_kit.deployment.plan import make_plan
from outbox_kit.deployment.reading import wait_reading

__all__ = [
    "SYSTEMS",
    "Deployment",
    "Flags",
    "Plan",
    "Removal",
    "RollOut",
    "apply",
    "deployment_of",
    "destroy",
    "make_plan",
    "open_deployment",
    "plan_destroy",
    "prepare",
    "read_plan",
    "render_files",
    "render_sql",
    "to_document",
    "wait_reading",
]
