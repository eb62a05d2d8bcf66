// A small line chart of ratios over the last minutes: an element and the styles of its lines -> a uPlot chart.
import { clock } from "./heatmap.js";
import { css } from "./ramps.js";
import { zoomHooks } from "./zoom.js";

const HEIGHT = 130;

export function ratioPlot(holder, lines) {
  const axis = { stroke: () => css("quiet"), grid: { stroke: () => css("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const chart = new uPlot({
    width: 200,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 }, drag: { x: true, y: false } },
    hooks: zoomHooks,
    scales: { y: { range: [0, 1] } },
    axes: [
      { ...axis, size: 22, values: (_, ticks) => ticks.map((s) => clock(s)), space: 70 },
      { ...axis, size: 36, values: (_, ticks) => ticks.map((ratio) => `${Math.round(ratio * 100)}%`), splits: () => [0, 0.5, 1] },
    ],
    series: [{}, ...lines.map((line) => ({ ...line, points: { show: false } }))],
  }, [[], ...lines.map(() => [])], holder);
  // Its place shrinks when the next plots appear beside it.
  new ResizeObserver(() => chart.setSize({ width: holder.clientWidth, height: HEIGHT })).observe(holder);
  return chart;
}
