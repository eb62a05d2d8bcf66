// A heat map on a canvas: labelled rows of bytes over time, with jobs as bands. It shows a tooltip and handles clicks.
import { css, hue, ramp } from "./ramps.js";

const LABEL_PX = 86;
const AXIS_PX = 20;
const MAX_PX = 22;

export class HeatMap {
  // describe(row, column) returns the tooltip's text; pick(row, column) is called on a click.
  constructor(figure, { describe, pick }) {
    this.canvas = figure.querySelector("canvas");
    this.tip = figure.querySelector(".tip");
    this.describe = describe;
    this.data = null;
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cell(event);
      if (cell && pick) pick(...cell);
    });
    new ResizeObserver(() => this.draw()).observe(figure);
    document.addEventListener("twin:theme", () => this.draw());
  }

  // labels: the name of each row; levels: rows × columns bytes; endS: epoch second at the end of the last column;
  // stepS: width of a column; bands: {name, rows: [first, last], fromS, toS}; chosen: the marked row; marks: epoch
  // seconds at which a line is drawn.
  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    if (!this.data || !this.canvas.clientWidth) return;
    const { labels, columns, levels, scale, bands = [], chosen = -1 } = this.data;
    const width = this.canvas.clientWidth;
    const rowPx = Math.max(3, Math.min(MAX_PX, Math.floor((this.data.heightPx || 480) / Math.max(labels.length, 1))));
    const height = rowPx * labels.length + AXIS_PX;
    const dots = window.devicePixelRatio || 1;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(width * dots);
    this.canvas.height = Math.round(height * dots);
    const pen = this.canvas.getContext("2d");
    pen.scale(dots, dots);
    this.rowPx = rowPx;
    const plotPx = width - LABEL_PX;

    this.hatch(pen, LABEL_PX, 0, plotPx, rowPx * labels.length);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(bitmap(levels, labels.length, columns, ramp(scale)), LABEL_PX, 0, plotPx, rowPx * labels.length);
    if (rowPx >= 8) this.separate(pen, labels.length, width);
    this.label(pen, labels, chosen);
    for (const band of bands) this.band(pen, band, plotPx);
    for (const s of this.data.marks || []) this.mark(pen, s, plotPx, rowPx * labels.length);
    this.axis(pen, plotPx, rowPx * labels.length);
  }

  hatch(pen, x, y, width, height) {
    pen.fillStyle = css("unknown");
    pen.fillRect(x, y, width, height);
    pen.strokeStyle = css("other");
    pen.lineWidth = 0.5;
    pen.save();
    pen.beginPath();
    pen.rect(x, y, width, height);
    pen.clip();
    pen.beginPath();
    for (let at = -height; at < width; at += 7) {
      pen.moveTo(x + at, y + height);
      pen.lineTo(x + at + height, y);
    }
    pen.stroke();
    pen.restore();
  }

  separate(pen, rows, width) {
    pen.fillStyle = css("sheet");
    for (let row = 1; row < rows; row += 1) pen.fillRect(LABEL_PX, row * this.rowPx - 0.5, width - LABEL_PX, 1);
  }

  label(pen, labels, chosen) {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(14 / this.rowPx));
    labels.forEach((text, row) => {
      if (row !== chosen && row % every) return;
      pen.fillStyle = row === chosen ? css("accent") : css("quiet");
      pen.fillText(clip(pen, String(text), LABEL_PX - 16), 2, (row + 0.5) * this.rowPx);
    });
    if (chosen < 0) return;
    pen.strokeStyle = css("accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(LABEL_PX + 0.5, chosen * this.rowPx, this.canvas.clientWidth - LABEL_PX - 1.5, this.rowPx);
  }

  // The x coordinate of an epoch second, limited to the plot.
  place(s, plotPx) {
    const { endS, stepS, columns } = this.data;
    const span = columns * stepS;
    return LABEL_PX + (Math.min(Math.max(s - (endS - span), 0), span) / span) * plotPx;
  }

  mark(pen, s, plotPx, height) {
    const x = this.place(s, plotPx);
    if (x <= LABEL_PX || x >= LABEL_PX + plotPx) return;
    pen.fillStyle = css("alarm");
    pen.fillRect(x - 1, 0, 2, height + 4);
  }

  band(pen, { name, rows: [first, last], fromS, toS }, plotPx) {
    const x = (s) => this.place(s, plotPx);
    const [left, right, top, bottom] = [x(fromS), x(toS), first * this.rowPx, (last + 1) * this.rowPx];
    if (right - left < 1) return;
    pen.fillStyle = hue(name);
    pen.fillRect(left - 5, top + 1, 4, bottom - top - 2);
    pen.strokeStyle = hue(name);
    pen.lineWidth = 1;
    pen.strokeRect(left + 0.5, top + 0.5, right - left - 1, bottom - top - 1);
  }

  axis(pen, plotPx, y) {
    const { endS, stepS, columns } = this.data;
    const span = columns * stepS;
    const step = [10, 30, 60, 300, 600, 1800, 3600, 14400, 43200].find((s) => (s / span) * plotPx > 90) || 86400;
    pen.fillStyle = css("quiet");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (let s = Math.ceil((endS - span) / step) * step; s <= endS; s += step) {
      const x = LABEL_PX + ((s - endS + span) / span) * plotPx;
      pen.fillRect(x, y, 1, 3);
      if (x > LABEL_PX + 16 && x < LABEL_PX + plotPx - 24) pen.fillText(clock(s, step < 60), x, y + 5);
    }
    pen.textAlign = "start";
  }

  cell(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - LABEL_PX) / (box.width - LABEL_PX)) * this.data.columns);
    const row = Math.floor((event.clientY - box.top) / this.rowPx);
    return row >= 0 && row < this.data.labels.length && column < this.data.columns ? [row, Math.max(column, 0)] : null;
  }

  point(event) {
    const cell = this.cell(event);
    this.tip.hidden = !cell;
    if (!cell) return;
    this.tip.textContent = this.describe(...cell);
    const box = this.canvas.getBoundingClientRect();
    const left = event.clientX - box.left;
    this.tip.style.left = `${Math.min(left + 14, box.width - this.tip.offsetWidth - 4)}px`;
    this.tip.style.top = `${event.clientY - box.top + 16}px`;
  }
}

export const clock = (epochS, seconds = true) =>
  new Date(epochS * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", ...(seconds && { second: "2-digit" }), hourCycle: "h23" });

export const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

function bitmap(levels, rows, columns, colours) {
  const image = new ImageData(Math.max(columns, 1), Math.max(rows, 1));
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < rows * columns; i += 1) words[i] = colours[levels[i]];
  const sheet = new OffscreenCanvas(image.width, image.height);
  sheet.getContext("2d").putImageData(image, 0, 0);
  return sheet;
}

function clip(pen, text, px) {
  if (pen.measureText(text).width <= px) return text;
  let end = text.length;
  while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > px) end -= 1;
  return `${text.slice(0, end)}…`;
}
