// The event page: threads × seconds in the channel that explains the event; live while the event is open.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onSnapshot } from "./live.js";
import { UNKNOWN, paint } from "./ramps.js";

const figure = document.getElementById("event");
const none = document.getElementById("event-empty");
let shown = null;
let closed = false; // the picture of a closed event does not change: load it once

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.levels[row * shown.columns + column];
    const ratio = level === UNKNOWN ? "unknown" : `${Math.round((level / 254) * 100)} %`;
    return `${shown.labels[row]}  ${clock(shown.endS - (shown.columns - column) * shown.stepS)}\n${shown.label} ${ratio}`;
  },
});

async function refresh() {
  if (closed) return;
  const picture = await load(`/pictures/events/${encodeURIComponent(figure.dataset.id)}`);
  closed = !picture.live;
  figure.hidden = !picture.labels.length;
  none.hidden = !figure.hidden;
  document.getElementById("ramp-key").firstChild.textContent = `${picture.label}: none `;
  ramp(picture.channel);
  if (figure.hidden) {
    none.querySelector(".reason").textContent = picture.reason;
    return;
  }
  const marks = [picture.onset_s, picture.over_s].filter(Boolean);
  shown = { ...picture, levels: bytes(picture.levels), endS: picture.end_s, stepS: picture.step_s, scale: picture.channel, heightPx: 360, marks };
  document.getElementById("event-source").textContent = picture.source === "memory" ? "" : `from ${picture.source}${picture.step_s > 1 ? `, ${picture.step_s} s per column` : ""}${picture.note ? `, ${picture.note}` : ""}`;
  map.show(shown);
}

const ramp = (channel) => paint(document.getElementById("ramp"), channel);
document.addEventListener("twin:theme", () => { if (shown) ramp(shown.channel); });
refresh();
onSnapshot(refresh);
