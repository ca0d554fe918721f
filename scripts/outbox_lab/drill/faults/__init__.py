"""Define the faults of the drill, and inject them."""

from outbox_lab.drill.faults.fault import FAULTS, Action, Fault, NotApplicableError, fault_named
from outbox_lab.drill.faults.injection import inject, prepared

__all__ = ["FAULTS", "Action", "Fault", "NotApplicableError", "fault_named", "inject", "prepared"]
