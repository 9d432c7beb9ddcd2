"use strict";

// What all pages share: elements, charts, and the start of a page. Names in the data come from the user. They reach the
// page as text, never as HTML.

/** Colours of schedulers. Colour-blind readers can tell the first ones apart too (Okabe and Ito 2008). */
const MARKS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#777777"];
/** Height of a row of a heat map, and least and largest height of the whole map, in pixels. */
const ROW = 15, LOWEST = 130, HIGHEST = 560;

const dark = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");

/** Functions that draw the charts again after the reader has chosen something. */
const drawers = [];
let data;

// --- Elements ---

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A section of the page: its title, and sentences that say how to read it. */
function section(id, title, read, ...children) {
  const made = element("section", { id }, element("h2", {}, title), element("p", { class: "read" }, read), ...children);
  document.getElementById("report").append(made);
  return made;
}

function table(header, rows) {
  const number = (cell) => (typeof cell === "number" || /^[-+]?[\d.,]+%?\*?$/.test(cell) ? { class: "number" } : {});
  const row = (cells) => element("tr", {}, ...cells.map((cell) => element("td", number(cell), String(cell))));
  const numeric = (index) => rows.length > 0 && "class" in number(rows[0][index]);
  const head = header.map((name, index) => element("th", numeric(index) ? { class: "number" } : {}, name));
  return element("div", { class: "wide" },
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows.map(row))));
}

/** A paragraph in small print. */
const note = (text) => element("p", { class: "note" }, text);

function select(label, options, value, change) {
  const made = element("select", { onchange: () => change(made.value) });
  for (const [key, name] of options) made.append(element("option", { value: key }, name));
  made.value = value;
  return element("label", {}, `${label} `, made);
}

// --- Numbers and names ---

const mark = (scheduler) => MARKS[scheduler % MARKS.length];
const sum = (values) => values.reduce((total, value) => total + value, 0);
/** Escapes a name, because Plotly interprets some HTML tags in texts. */
const text = (name) => name.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A number with five significant digits, as in the tables of the command line. */
function digits(value) {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 10000 ? value.toFixed(0) : Number(value.toPrecision(5)).toString();
}

// --- Charts ---

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const night = dark.matches && !printing.matches;
  return {
    text: of("--text"), line: of("--line"), faint: of("--faint"),
    heat: night
      ? [[0, "#1c2227"], [0.02, "#1d3346"], [0.35, "#1f78b4"], [0.7, "#7cc7a5"], [1, "#ffe680"]]
      : [[0, "#f6f8f9"], [0.02, "#dcebf5"], [0.35, "#6baed6"], [0.7, "#2171b5"], [1, "#08254d"]],
  };
}

/** Draws a chart. Its axes cannot be dragged, so that a finger on it scrolls the page. */
function draw(place, traces, layout) {
  const { text: color, line } = colours();
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, automargin: true, fixedrange: true };
  const all = {
    margin: { l: 10, r: 10, t: 8, b: 40 }, paper_bgcolor: "transparent", plot_bgcolor: "transparent",
    font: { color, family: "system-ui, DejaVu Sans, sans-serif", size: 12 }, dragmode: false, showlegend: false,
    ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
  return Plotly.react(place, traces, all, { responsive: true, displayModeBar: false });
}

/** A place for a chart, with its title. */
function panel(parent, title, scheduler) {
  const chart = element("div", { class: "chart" });
  const made = element("div", { class: "panel" }, title === null ? null : element("h3", {}, title), chart);
  if (scheduler !== undefined) made.dataset.scheduler = scheduler;
  parent.append(made);
  return chart;
}

/** Draws a heat map, the first row at the top. */
function heat(place, { x, rows, z, most, xaxis, unit, hover, shapes, click, square }) {
  const { heat: colorscale, line } = colours();
  const height = Math.min(Math.max(rows.length * (square ? 22 : ROW), LOWEST), HIGHEST);
  const every = Math.ceil((rows.length * 12) / height);
  const ticks = rows.map((_, index) => index).filter((index) => index % every === 0);
  const trace = {
    type: "heatmap", x, y: rows.map((_, index) => index), z, zmin: 0, zmax: most, colorscale, xgap: square ? 1 : 0,
    ygap: rows.length > 64 ? 0 : 1, customdata: z.map((row, index) => row.map(() => text(rows[index].name))),
    hovertemplate: `%{customdata}<br>${hover}<extra></extra>`,
    colorbar: { title: { text: unit, side: "right" }, thickness: 10, outlinewidth: 0, len: 1 },
  };
  const between = rows.flatMap((row, index) => index > 0 && row.node !== rows[index - 1].node ? [index - 0.5] : []);
  const lines = between.map((y) => (
    { type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: line } }));
  draw(place, [trace], {
    height: height + 60, xaxis: { showgrid: false, zeroline: false, ...xaxis }, shapes: [...lines, ...(shapes ?? [])],
    yaxis: {
      autorange: "reversed", tickvals: ticks, ticktext: ticks.map((index) => text(rows[index].label)), showgrid: false,
      zeroline: false, tickfont: { size: 10 },
    },
  });
  place.removeAllListeners("plotly_click");
  if (click) place.on("plotly_click", (event) => click(event.points[0].y));
}

/**
 * Draws each quantity as a point, with one value to the right and the other one upwards. `groups` have a name, a color,
 * a symbol and points ({ x, y, x_bar, y_bar, told, key }). Bars are [below, above]. `lines` are further curves
 * ({ x, y }), such as limits of a tolerance. `click` is called with the key of the clicked point.
 */
function beside(place, groups, { xaxis, yaxis, lines, click }) {
  const { line } = colours();
  const bar = (points, key) => ({
    type: "data", symmetric: false, array: points.map((point) => point[key]?.[1] ?? 0),
    arrayminus: points.map((point) => point[key]?.[0] ?? 0), thickness: 1, width: 0,
  });
  const curves = lines.map(({ x, y, dash }) => ({
    type: "scatter", mode: "lines", x, y, line: { color: line, dash, width: 1.5 }, hoverinfo: "skip", showlegend: false,
  }));
  const traces = groups.map(({ name, color, symbol, points }) => ({
    type: "scatter", mode: "markers", name: text(name),
    x: points.map((point) => point.x), y: points.map((point) => point.y),
    error_x: bar(points, "x_bar"), error_y: bar(points, "y_bar"), text: points.map((point) => text(point.told)),
    customdata: points.map((point) => point.key ?? null), hovertemplate: "%{text}<extra></extra>",
    marker: { color, symbol: symbol ?? "circle", size: 7, opacity: 0.75 },
  }));
  draw(place, [...curves, ...traces], {
    height: 420, xaxis, yaxis, showlegend: true, hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, margin: { l: 10, r: 10, t: 10, b: 40 },
  });
  place.removeAllListeners("plotly_click");
  if (click) place.on("plotly_click", (event) => click(event.points[0].customdata));
}

/**
 * Draws rows ({ label, told, sides: [{ value, low, high }] }). Each row has two values with their intervals. `sides`
 * has a name, a colour and a symbol for each of the two.
 */
function intervals(place, rows, sides, xaxis) {
  const traces = sides.map(({ name, color, symbol }, side) => {
    const found = rows.map((row, y) => ({ ...row, y, of: row.sides[side] })).filter(({ of }) => of.value !== null);
    return {
      type: "scatter", mode: "markers", name, x: found.map(({ of }) => of.value),
      y: found.map(({ y }) => y + (side === 0 ? -0.15 : 0.15)), text: found.map(({ told }) => text(told)),
      hovertemplate: `${name} %{x:.4~g}<br>%{text}<extra></extra>`, marker: { color, symbol, size: 8 },
      error_x: {
        type: "data", symmetric: false, array: found.map(({ of }) => (of.high ?? of.value) - of.value),
        arrayminus: found.map(({ of }) => of.value - (of.low ?? of.value)), thickness: 1.5, width: 3,
      },
    };
  });
  draw(place, traces, {
    height: 110 + 22 * rows.length, showlegend: true, hovermode: "closest",
    legend: { orientation: "h", y: 1.0, yanchor: "bottom" }, xaxis: { nticks: 7, ...xaxis },
    yaxis: {
      tickvals: rows.map((_, index) => index), ticktext: rows.map((row) => text(row.label)), zeroline: false,
      range: [rows.length - 0.5, -0.5], tickfont: { size: 10 },
    },
  });
}

// --- The page ---

function redraw() {
  for (const drawer of drawers) drawer();
}

/** The text of an element that holds gzip in base64. */
async function unpacked(id) {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (char) => char.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Draws the parts of the page, in this order. */
async function start(parts) {
  try {
    const [text, library] = await Promise.all([unpacked("data"), unpacked("library")]);
    data = JSON.parse(text);
    document.head.append(element("script", {}, library));
    document.getElementById("state").remove();
    for (const part of parts) part();
    redraw();
    dark.addEventListener("change", redraw);
    printing.addEventListener("change", redraw);
    document.documentElement.dataset.state = "drawn";
  } catch (error) {
    console.error(error);
    const told = `The report cannot be drawn: ${error}. Try a newer browser.`;
    document.getElementById("report").prepend(element("p", {}, told));
  }
}
