"""Plan and apply: from the files to a running pipeline."""

from outbox_kit.deployment.apply import apply, prepare
from outbox_kit.deployment.context import Deployment, open_deployment, render_files
from outbox_kit.deployment.plan import make_plan

__all__ = ["Deployment", "apply", "make_plan", "open_deployment", "prepare", "render_files"]
