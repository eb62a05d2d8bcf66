// An event's threads × seconds in the channel that tells most: live while it goes on, its whole time once it is over.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onSnapshot } from "./live.js";
import { UNKNOWN, paint } from "./ramps.js";

const figure = document.getElementById("event");
const none = document.getElementById("event-empty");
let shown = null;
let over = false; // what is over does not change, and is asked for once

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.levels[row * shown.columns + column];
    const ratio = level === UNKNOWN ? "unknown" : `${Math.round((level / 254) * 100)} %`;
    return `${shown.labels[row]}  ${clock(shown.endS - (shown.columns - column) * shown.stepS)}\n${shown.channel} ${ratio}`;
  },
});

async function refresh() {
  if (over) return;
  const news = await load(`/pictures/events/${encodeURIComponent(figure.dataset.id)}`);
  over = !news.live;
  figure.hidden = !news.labels.length;
  none.hidden = !figure.hidden;
  document.getElementById("ramp-key").firstChild.textContent = `${news.channel}: none `;
  ramp(news.channel);
  if (figure.hidden) {
    none.querySelector(".reason").textContent = news.reason;
    return;
  }
  const marks = [news.onset_s, news.over_s].filter(Boolean);
  shown = { ...news, levels: bytes(news.levels), endS: news.end_s, stepS: news.step_s, scale: news.channel, heightPx: 360, marks };
  document.getElementById("event-source").textContent = news.source === "memory" ? "" : `from ${news.source}${news.step_s > 1 ? `, ${news.step_s} s a column` : ""}`;
  map.show(shown);
}

const ramp = (channel) => paint(document.getElementById("ramp"), channel);
document.addEventListener("twin:theme", () => { if (shown) ramp(shown.channel); });
refresh();
onSnapshot(refresh);
