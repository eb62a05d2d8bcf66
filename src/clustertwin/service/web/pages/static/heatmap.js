// A heat map on a canvas: labelled rows of bytes over time, with jobs as bands. Mouse and keyboard select a cell: a
// tooltip describes it, and a click or Enter picks it.
import { css, hue, ramp } from "./ramps.js";

const LABEL_PX = 86;
const LINE_PX = 13;
const PAGE_ROWS = 10;
const SHARE_PX = 34;
const AXIS_PX = 20;
const MAX_PX = 22;

export class HeatMap {
  // describe(row, column) returns the tooltip's text; pick(row, column) is called on a click.
  constructor(figure, { describe, pick }) {
    this.canvas = figure.querySelector("canvas");
    this.tip = figure.querySelector(".tip");
    this.describe = describe;
    this.pick = pick;
    this.data = null;
    this.labelPx = LABEL_PX;
    this.cursor = null; // the cell that the keyboard selects: [row, columns before the newest]
    this.spoken = document.createElement("p");
    this.spoken.className = "visually-hidden";
    this.spoken.setAttribute("aria-live", "polite");
    figure.append(this.spoken);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "heat map; the arrow keys select a cell");
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => { if (this.canvas.matches(":focus-visible")) this.move(0, 0); });
    this.canvas.addEventListener("blur", () => { this.cursor = null; this.tip.hidden = true; this.draw(); });
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const cell = this.cell(event);
      if (cell && this.pick) this.pick(...cell);
    });
    new ResizeObserver(() => this.draw()).observe(figure);
    document.addEventListener("twin:theme", () => this.draw());
  }

  // labels: the name of each row; levels: rows × columns bytes; endS: epoch second at the end of the last column;
  // stepS: width of a column; bands: {name, rows: [first, last], fromS, toS}; chosen: the marked row; marks: epoch
  // seconds at which a line is drawn; alarming: whether each row is marked as unusual; shares: the share of unusual
  // threads of each row, drawn as a bar; labelPx: width of the labels.
  show(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    if (!this.data || !this.canvas.clientWidth) return;
    const { labels, columns, levels, scale, bands = [], chosen = -1 } = this.data;
    this.labelPx = this.data.labelPx || LABEL_PX;
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
    const plotPx = width - this.labelPx;

    this.hatch(pen, this.labelPx, 0, plotPx, rowPx * labels.length);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(bitmap(levels, labels.length, columns, ramp(scale)), this.labelPx, 0, plotPx, rowPx * labels.length);
    if (rowPx >= 8) this.separate(pen, labels.length, width);
    this.label(pen, labels, chosen);
    this.share(pen);
    for (const band of bands) this.band(pen, band, plotPx);
    for (const s of this.data.marks || []) this.mark(pen, s, plotPx, rowPx * labels.length);
    this.axis(pen, plotPx, rowPx * labels.length);
    this.select(pen, plotPx);
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
    for (let row = 1; row < rows; row += 1) pen.fillRect(this.labelPx, row * this.rowPx - 0.5, width - this.labelPx, 1);
  }

  label(pen, labels, chosen) {
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.font = font;
    pen.textBaseline = "middle";
    const { alarming = [], shares } = this.data;
    const left = alarming.length ? 14 : 2;
    const room = this.labelPx - left - (shares ? SHARE_PX + 12 : 14);
    const rank = (row) => (row === chosen ? 0 : alarming[row] ? 1 : 2);
    const drawn = [];
    // Where rows are narrow, the chosen row and the unusual ones get their label first.
    for (const row of labels.map((_, i) => i).sort((a, b) => rank(a) - rank(b) || a - b)) {
      if (alarming[row]) this.triangle(pen, row);
      if (drawn.some((other) => Math.abs(other - row) * this.rowPx < LINE_PX)) continue;
      drawn.push(row);
      pen.font = `${alarming[row] ? "bold " : ""}${font}`;
      pen.fillStyle = css(alarming[row] ? "alarm" : row === chosen ? "accent" : "quiet");
      pen.fillText(clip(pen, String(labels[row]), room), left, (row + 0.5) * this.rowPx);
    }
    pen.font = font;
    if (chosen < 0) return;
    pen.strokeStyle = css("accent");
    pen.lineWidth = 1.5;
    pen.strokeRect(this.labelPx + 0.5, chosen * this.rowPx, this.canvas.clientWidth - this.labelPx - 1.5, this.rowPx);
  }

  // A marker that differs in shape, not only in colour.
  triangle(pen, row) {
    const half = Math.max(Math.min(this.rowPx / 2 - 1, 5), 1);
    const middle = (row + 0.5) * this.rowPx;
    pen.fillStyle = css("alarm");
    pen.beginPath();
    pen.moveTo(1, middle - half);
    pen.lineTo(11, middle);
    pen.lineTo(1, middle + half);
    pen.fill();
  }

  share(pen) {
    const { shares } = this.data;
    if (!shares) return;
    const [left, height] = [this.labelPx - SHARE_PX - 7, Math.max(Math.min(this.rowPx - 4, 8), 2)];
    shares.forEach((ratio, row) => {
      const top = (row + 0.5) * this.rowPx - height / 2;
      pen.fillStyle = css("unknown");
      pen.fillRect(left, top, SHARE_PX, height);
      pen.fillStyle = css("alarm");
      if (ratio > 0) pen.fillRect(left, top, Math.max(ratio * SHARE_PX, 1), height);
    });
  }

  // The cell that the keyboard has selected.
  select(pen, plotPx) {
    if (!this.cursor) return;
    const [row, column] = this.selected();
    const cellPx = plotPx / this.data.columns;
    pen.strokeStyle = css("ink");
    pen.lineWidth = 2;
    pen.strokeRect(this.labelPx + column * cellPx - 2, row * this.rowPx, Math.max(cellPx, 3) + 3, this.rowPx);
  }

  selected() {
    const { labels, columns } = this.data;
    const [row, back] = this.cursor;
    return [Math.min(row, labels.length - 1), Math.max(columns - 1 - back, 0)];
  }

  move(rows, columns) {
    if (!this.data || !this.data.labels.length) return;
    const { labels, chosen = -1, alarming = [] } = this.data;
    const [row, back] = this.cursor || [Math.max(chosen >= 0 ? chosen : alarming.indexOf(true), 0), 0];
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    this.cursor = [within(row + rows, labels.length), within(back - columns, this.data.columns)];
    this.draw();
    const cell = this.selected();
    const text = this.describe(...cell);
    this.spoken.textContent = text.replaceAll("\n", ", ");
    this.tip.textContent = text;
    this.tip.hidden = false;
    const width = this.canvas.clientWidth;
    const x = this.labelPx + (cell[1] / this.data.columns) * (width - this.labelPx);
    this.tip.style.left = `${Math.max(Math.min(x + 14, width - this.tip.offsetWidth - 4), 0)}px`;
    this.tip.style.top = `${(cell[0] + 1) * this.rowPx + 6}px`;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.data) return;
    const all = this.data.columns;
    const steps = {
      ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      PageUp: [-PAGE_ROWS, 0], PageDown: [PAGE_ROWS, 0], Home: [0, -all], End: [0, all],
    };
    if (steps[event.key]) this.move(...steps[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && this.cursor && this.pick) this.pick(...this.selected());
    else if (event.key === "Escape" && !this.tip.hidden) this.tip.hidden = true;
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The x coordinate of an epoch second, limited to the plot.
  place(s, plotPx) {
    const { endS, stepS, columns } = this.data;
    const span = columns * stepS;
    return this.labelPx + (Math.min(Math.max(s - (endS - span), 0), span) / span) * plotPx;
  }

  mark(pen, s, plotPx, height) {
    const x = this.place(s, plotPx);
    if (x <= this.labelPx || x >= this.labelPx + plotPx) return;
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
    const steps = [10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200];
    const step = steps.find((s) => (s / span) * plotPx > (s < 60 ? 90 : 60)) || 86400;
    pen.fillStyle = css("quiet");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (let s = Math.ceil((endS - span) / step) * step; s <= endS; s += step) {
      const x = this.labelPx + ((s - endS + span) / span) * plotPx;
      pen.fillRect(x, y, 1, 3);
      if (x > this.labelPx + 16 && x < this.labelPx + plotPx - 24) pen.fillText(clock(s, step < 60), x, y + 5);
    }
    pen.textAlign = "start";
  }

  cell(event) {
    if (!this.data) return null;
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - this.labelPx) / (box.width - this.labelPx)) * this.data.columns);
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
