"""The default generator: the sessions of a log, recombined. `generator` holds the model, the other files its parts."""

from clustertwin.workload.generators.crossover.generator import Crossover, FittedCrossover

__all__ = ["Crossover", "FittedCrossover"]
