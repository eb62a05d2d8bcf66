// An event's threads × seconds in the channel that tells most, as long as they are in memory.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onSnapshot } from "./live.js";
import { UNKNOWN, paint } from "./ramps.js";

const figure = document.getElementById("event");
let shown = null;

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.levels[row * shown.columns + column];
    const ratio = level === UNKNOWN ? "unknown" : `${Math.round((level / 254) * 100)} %`;
    return `${shown.labels[row]}  ${clock(shown.endS - shown.columns + column)}\n${shown.channel} ${ratio}`;
  },
});

async function refresh() {
  const news = await load(`/pictures/events/${encodeURIComponent(figure.dataset.id)}`);
  const empty = !news.labels.length;
  figure.hidden = empty;
  document.getElementById("event-empty").hidden = !empty;
  paint(document.getElementById("ramp"), news.channel);
  document.getElementById("ramp-key").firstChild.textContent = `${news.channel}: none `;
  if (empty) return;
  shown = { ...news, levels: bytes(news.levels), endS: news.end_s, stepS: news.step_s, scale: news.channel, heightPx: 360, markS: news.onset_s };
  map.show(shown);
}

refresh();
onSnapshot(refresh);
document.addEventListener("twin:theme", () => refresh());
