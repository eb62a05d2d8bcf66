"""Job table + policy -> schedule: an event-driven simulator of rigid parallel jobs on a homogeneous machine."""

from clustertwin.workload.simulator.intake import Unit, machine_size
from clustertwin.workload.simulator.metrics import Interval, Metrics
from clustertwin.workload.simulator.run import Backfill, simulate
from clustertwin.workload.simulator.schedule import Schedule
from clustertwin.workload.simulator.scoring import PolicyError

__all__ = ["Backfill", "Interval", "Metrics", "PolicyError", "Schedule", "Unit", "machine_size", "simulate"]
