// The cluster page: the unusual threads of each node over time. A click opens the node.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onTick } from "./live.js";
import { UNKNOWN, paint, scoreOf } from "./ramps.js";

const figure = document.getElementById("cluster");
let shown = null;

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.scores[row * shown.columns + column];
    const score = level === UNKNOWN ? "unknown" : `highest score ${scoreOf(level, shown.threshold).toFixed(1)} (threshold ${shown.threshold.toFixed(1)})`;
    return `${shown.labels[row]}  ${clock(shown.endS - (shown.columns - 1 - column) * shown.stepS)}\n${score}\nnow ${shown.alarming_threads[row]} of ${shown.threads[row]} threads unusual`;
  },
  pick: (row) => window.location.assign(`/nodes/${encodeURIComponent(shown.labels[row])}`),
});

async function refresh() {
  const picture = await load("/pictures/cluster");
  shown = { ...picture, levels: bytes(picture.levels), scores: bytes(picture.score_levels), endS: picture.end_s, stepS: picture.step_s, scale: "score", heightPx: 420, labelPx: 136 };
  shown.shares = shown.threads.map((threads, row) => (threads ? shown.alarming_threads[row] / threads : 0));
  const empty = !picture.columns || !picture.labels.length;
  figure.hidden = empty;
  document.getElementById("cluster-empty").hidden = !empty;
  if (!empty) map.show(shown);
  figure.dataset.end = picture.end_s;
}

const ramp = () => paint(document.getElementById("ramp"), "score");
document.addEventListener("twin:theme", ramp);
ramp();
refresh();
onTick(refresh);
