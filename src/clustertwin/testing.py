"""Public checks for your own views, models, generators and environments. Each raises an AssertionError with the reason.

from clustertwin.testing import check_generator

def test_my_generator_keeps_the_contract():
    check_generator(MyGenerator(), ct.example_log(500))
"""

from __future__ import annotations

from clustertwin.telemetry.detection.views.check import check_view
from clustertwin.telemetry.models.check import check_model
from clustertwin.workload.generators.check import check_generator

__all__ = ["check_generator", "check_model", "check_view"]
