"""How like the real log is a synthetic one? Two job tables -> a scorecard and a report."""

from clustertwin.workload.fidelity.sample import Sample
from clustertwin.workload.fidelity.scorecard import Scorecard, compare, scorecard

__all__ = ["Sample", "Scorecard", "compare", "scorecard"]
