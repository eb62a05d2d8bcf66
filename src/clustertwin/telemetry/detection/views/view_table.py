"""The table of views: name -> a function that makes an unfitted view. To add a view, add its file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from clustertwin.core.errors import SettingsError
from clustertwin.telemetry.detection.views.contract import DetectorSettings, View
from clustertwin.telemetry.detection.views.density import DensityView
from clustertwin.telemetry.detection.views.distance import DistanceView
from clustertwin.telemetry.detection.views.peers import PeersView
from clustertwin.telemetry.detection.views.reconstruction import ReconstructionView
from clustertwin.telemetry.moments.moment import LENGTH_S, WINDOW_S

#: The order is that of the columns of `Scores.surprise`. A view can use the surprise of the views above it.
VIEWS: dict[str, Callable[[DetectorSettings], View]] = {
    "reconstruction": ReconstructionView,
    "density": partial(DensityView, length_s=WINDOW_S),
    "density-5min": partial(DensityView, length_s=LENGTH_S),
    "peers": partial(PeersView, length_s=WINDOW_S),
    "peers-5min": partial(PeersView, length_s=LENGTH_S),
    "distance": DistanceView,
}


def make_views(settings: DetectorSettings, names: Iterable[str] | None = None) -> dict[str, View]:
    """Unfitted views of these names, or of all; always in the order of the table."""
    chosen = set(VIEWS if names is None else names)
    if unknown := chosen - set(VIEWS):
        raise SettingsError(f"no view {', '.join(sorted(unknown))}; the views are {', '.join(VIEWS)}")
    return {name: make(settings) for name, make in VIEWS.items() if name in chosen}
