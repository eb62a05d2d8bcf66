"""Attacks on a published log: what an attacker learns from it about the real users and jobs."""

from clustertwin.workload.privacy.attack_suite import Attacks, attack, averaged

__all__ = ["Attacks", "attack", "averaged"]
