// Nodes × time, worst first: the strangest score of each node; a click opens the node.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onTick } from "./live.js";
import { UNKNOWN, paint } from "./ramps.js";

const figure = document.getElementById("cluster");
let shown = null;

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.levels[row * shown.columns + column];
    const score = level === UNKNOWN ? "unknown" : `score ${((level / 254) * 2 * shown.threshold).toFixed(1)} (threshold ${shown.threshold.toFixed(1)})`;
    return `${shown.labels[row]}  ${clock(shown.endS - (shown.columns - 1 - column) * shown.stepS)}\n${score}`;
  },
  pick: (row) => window.location.assign(`/nodes/${encodeURIComponent(shown.labels[row])}`),
});

async function refresh() {
  const news = await load("/pictures/cluster");
  shown = { ...news, levels: bytes(news.levels), endS: news.end_s, stepS: news.step_s, scale: "score", heightPx: 420 };
  const empty = !news.columns || !news.labels.length;
  figure.hidden = empty;
  document.getElementById("cluster-empty").hidden = !empty;
  if (!empty) map.show(shown);
  figure.dataset.end = news.end_s;
}

const ramp = () => paint(document.getElementById("ramp"), "score");
document.addEventListener("twin:theme", ramp);
ramp();
refresh();
onTick(refresh);
