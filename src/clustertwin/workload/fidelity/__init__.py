"""Compare a synthetic log with the real one: two job tables -> a scorecard and an HTML report."""

from clustertwin.workload.fidelity.measures.compared_log import ComparedLog
from clustertwin.workload.fidelity.scorecard import Scorecard, compare, scorecard

__all__ = ["ComparedLog", "Scorecard", "compare", "scorecard"]
