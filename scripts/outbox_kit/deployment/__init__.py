"""Plan, deploy and delete one pipeline in one environment, across all systems.

Requests to a single system are in that system's package.
"""

from outbox_kit.deployment.deployment import Deployment, deployment_of, open_deployment, render_config, render_sql
from outbox_kit.deployment.execution import apply, apply_prerequisites
from outbox_kit.deployment.first_backfills import pending_backfill_steps
from outbox_kit.deployment.lag import wait_until_reading
from outbox_kit.deployment.plan import make_plan
from outbox_kit.deployment.plan_model import EXCLUDED_OBJECTS_MESSAGE, SYSTEMS, Plan, RollOut, read_plan, to_document
from outbox_kit.deployment.preconditions import refuse_protected
from outbox_kit.deployment.source_epochs import connector_epoch
from outbox_kit.deployment.teardown import DestroyOptions, Removal, destroy, plan_destroy, unused_topics

__all__ = [
    "EXCLUDED_OBJECTS_MESSAGE",
    "SYSTEMS",
    "Deployment",
    "DestroyOptions",
    "Plan",
    "Removal",
    "RollOut",
    "apply",
    "apply_prerequisites",
    "connector_epoch",
    "deployment_of",
    "destroy",
    "make_plan",
    "open_deployment",
    "pending_backfill_steps",
    "plan_destroy",
    "read_plan",
    "refuse_protected",
    "render_config",
    "render_sql",
    "to_document",
    "unused_topics",
    "wait_until_reading",
]
