"""Plot recorded and simulated windows side by side: two sets of windows -> one figure per kind of job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustertwin.core import files
from clustertwin.core.extras import require
from clustertwin.core.traces import Windows
from clustertwin.telemetry.campaign.fitting.simulated_against_recorded import kinds_of
from clustertwin.telemetry.campaign.fitting.window_features import power_spectrum

_COLOURS = {"user": "#2a78b5", "system": "#e08214", "iowait": "#b2182b", "other": "#8c8c8c"}


def draw_figures(recorded: Windows, simulated: Windows, out: Path) -> list[Path]:
    """A PNG for each kind that is in both sets: example windows, distributions and spectra."""
    require("matplotlib", "plots").use("Agg")
    pyplot = require("matplotlib.pyplot", "plots")
    recorded_rows, simulated_rows = kinds_of(recorded), kinds_of(simulated)
    files.make_directory(out)
    paths = []
    for kind in sorted(set(recorded_rows) & set(simulated_rows)):
        name = "-".join(dict.fromkeys(part for part in kind if part)).replace("/", "-")
        figure = _figure(pyplot, name, recorded.values[recorded_rows[kind]], simulated.values[simulated_rows[kind]])
        paths.append(out / f"{name}.png")
        with files.replacing(paths[-1]) as image:
            figure.savefig(image, dpi=80, format="png")
        pyplot.close(figure)
    return paths


def _figure(pyplot: Any, name: str, recorded: NDArray[np.float32], simulated: NDArray[np.float32]) -> Any:
    figure, axes = pyplot.subplots(2, 4, figsize=(15, 5.5), layout="constrained")
    figure.suptitle(f"{name}: {len(recorded)} recorded windows (top), {len(simulated)} simulated windows (bottom)")
    for row, values in zip(axes, (recorded, simulated), strict=True):
        for axis, i in zip(row[:2], np.linspace(0, len(values) - 1, 2).astype(int), strict=True):
            axis.stackplot(np.arange(values.shape[1]), values[i].T, colors=list(_COLOURS.values()), step="mid")
            axis.set(ylim=(0, 1), xlabel="second")
    for c, (channel, colour) in enumerate(_COLOURS.items()):
        for values, line in ((recorded, "-"), (simulated, "--")):
            label = f"{channel}, {'recorded' if line == '-' else 'simulated'}"
            ordered = np.quantile(values[..., c], np.linspace(0, 1, 201))
            axes[0, 2].plot(ordered, np.linspace(0, 1, 201), line, color=colour, label=label)
            power = power_spectrum(values[..., c : c + 1])[..., 0].mean(axis=0)[1:]
            if values[..., c].std() >= 0.01:
                axes[1, 2].loglog(np.fft.rfftfreq(values.shape[1])[1:], power, line, color=colour)
    axes[0, 2].set(title="distribution of ratios", xlabel="ratio")
    axes[1, 2].set(title="spectra", xlabel="Hz")
    axes[1, 2].tick_params(which="minor", labelbottom=False, labelleft=False)
    for axis, values, side in ((axes[0, 3], recorded, "recorded"), (axes[1, 3], simulated, "simulated")):
        axis.scatter(values[..., 0].mean(1), values[..., 0].std(1), s=9, color=_COLOURS["user"], alpha=0.6)
        axis.set(title=f"windows, {side}", xlabel="mean of user", ylabel="standard deviation of user")
    for axis in axes[:, 3]:
        both = np.concatenate([recorded, simulated])[..., 0]
        axis.set(xlim=(both.mean(1).min() - 0.02, both.mean(1).max() + 0.02), ylim=(0, both.std(1).max() * 1.1 + 0.01))
    axes[0, 2].legend(fontsize=6)
    return figure
