// Every table with column headings: a click on a heading sorts by it, and links below export the shown rows.
const orders = new Map(); // the key of a table -> {column, down}; a table that is loaded again keeps its order

const headings = (table) => [...table.tHead.rows[0].cells];
const key = (table) => {
  const holder = table.closest("[id], main");
  return `${holder.id || "table"} ${[...holder.querySelectorAll("table")].indexOf(table)}`;
};

// The value of a cell: the instant of a time, a number if the text begins with one, else the text.
function value(cell) {
  const time = cell?.querySelector("time[datetime]");
  if (time?.dateTime) return Date.parse(time.dateTime);
  const text = textOf(cell);
  const number = /^-?[\d,]+(\.\d+)?(?= |$)/.exec(text);
  return number ? Number(number[0].replaceAll(",", "")) : text;
}
function textOf(cell) {
  const time = cell?.querySelector("time[datetime]");
  return time?.dateTime || (cell?.textContent || "").replace(/\s+/g, " ").trim();
}
const unknown = (entry) => entry === "–" || entry === "";

function compare(a, b, down) {
  if (unknown(a) || unknown(b)) return unknown(a) - unknown(b); // unknown values are last in both directions
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return down ? -order : order;
}

function sort(table) {
  const order = orders.get(key(table));
  if (!order) return;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, at: value(row.cells[order.column]) }));
  rows.sort((a, b) => compare(a.at, b.at, order.down));
  body.append(...rows.map(({ row }) => row));
  headings(table).forEach((heading, column) => {
    if (column === order.column) heading.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  });
}

function rowsOf(table) {
  const columns = headings(table).map((heading, column) => ({ name: heading.textContent.trim(), column }));
  const named = columns.filter(({ name, column }) => name && name !== "Actions" && name !== "Colour" && !headings(table)[column].querySelector("input"));
  const names = named.map(({ name }) => name);
  return { names, rows: [...table.tBodies[0].rows].map((row) => named.map(({ column }) => textOf(row.cells[column]))) };
}

// A spreadsheet runs a cell that begins with one of = + - @ as a formula; names come from outside.
const quoted = (text) => `"${(/^[=+\-@\t\r]/.test(text) && !/^-?[\d.,]+$/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
const FORMATS = {
  CSV: { type: "text/csv", write: ({ names, rows }) => [names, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") },
  JSON: { type: "application/json", write: ({ names, rows }) => JSON.stringify(rows.map((row) => Object.fromEntries(row.map((text, i) => [names[i], text]))), null, 1) },
};

function save(table, format) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([FORMATS[format].write(rowsOf(table))], { type: FORMATS[format].type }));
  link.download = `${key(table).replace(/\W+/g, "-")}.${format.toLowerCase()}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function equip(table) {
  headings(table).forEach((heading, column) => {
    if (heading.querySelector("input, button, .visually-hidden")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => {
      const last = orders.get(key(table));
      // Numbers are most interesting from the highest down, names from A to Z.
      const down = last?.column === column ? !last.down : heading.classList.contains("number");
      orders.set(key(table), { column, down });
      sort(table);
    });
    heading.append(button);
  });
  const links = document.createElement("p");
  links.className = "export";
  links.append("Export the rows shown: ");
  for (const format of Object.keys(FORMATS)) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link";
    button.textContent = format;
    button.addEventListener("click", () => save(table, format));
    links.append(button, " ");
  }
  (table.closest(".scroll") || table).after(links);
  sort(table);
}

function equipAll() {
  for (const table of document.querySelectorAll("table:has(> thead):not([data-equipped])")) {
    table.dataset.equipped = "";
    equip(table);
  }
}

document.addEventListener("htmx:afterSettle", equipAll);
equipAll();
