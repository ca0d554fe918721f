"""Faults of the drill, and their injection."""

from outbox_kit.drill.faults.catalogue import FAULTS, fault_named
from outbox_kit.drill.faults.fault import Action, Fault
from outbox_kit.drill.faults.injection import inject

__all__ = ["FAULTS", "Action", "Fault", "fault_named", "inject"]
