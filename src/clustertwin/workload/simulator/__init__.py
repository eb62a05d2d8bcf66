"""Job table + policy -> schedule: an event-driven simulator of rigid parallel jobs on a homogeneous machine."""

from clustertwin.workload.simulator.policy_scores import PolicyError
from clustertwin.workload.simulator.schedule import Schedule
from clustertwin.workload.simulator.scheduling_metrics import MeanInterval, ScheduleMetrics
from clustertwin.workload.simulator.simulate_log import Backfill, SchedulingRules, simulate

__all__ = [
    "Backfill",
    "MeanInterval",
    "PolicyError",
    "Schedule",
    "ScheduleMetrics",
    "SchedulingRules",
    "simulate",
]
