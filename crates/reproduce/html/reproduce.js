// Draws the page that compares published figures with simulated ones.

/** Groups of verdicts, each with its colour. */
const COLOURS = [
  ["right", "#0072b2", ["right", "no change as published", "level right"]],
  ["right sign, other size", "#56b4e9", ["right but small", "right but large"]],
  ["wrong", "#d55e00",
    ["wrong sign", "no change where one was published", "change where none was published", "level wrong"]],
  ["judged by rank, or nothing to judge", "#999999", ["by rank", "undefined", "not run"]],
];
/** What was known of a row before the model was fixed, each with its symbol. */
const SYMBOLS = { predicted: "circle", calibrated: "square", "chosen after": "diamond" };
/** The axes of changes are linear up to this many percent, and logarithmic beyond. */
const LINEAR = 3;

const signed = (value) => (value === null || value === undefined ? "-" : `${value < 0 ? "" : "+"}${value.toFixed(2)}%`);
const rows = () => Object.entries(data.studies)
  .flatMap(([study, { rows: all }]) => all.map((row) => ({ study, ...row })));
const simulated = (row) => row.simulated?.change_pct ?? null;
const hasChange = (row) => row.published_change_pct !== null && simulated(row) !== null;
/** Rows grouped by colour and symbol. */
const grouped = (found, point) => COLOURS.flatMap(([name, color, verdicts]) =>
  Object.entries(SYMBOLS).map(([status, symbol]) => ({
    name: `${name}, ${status}`, color, symbol,
    points: found.filter((row) => verdicts.includes(row.verdict) && row.status === status).map(point),
  }))).filter(({ points }) => points.length > 0);

// --- 1. The score ---

function score() {
  const share = ({ right, of }) => (of > 0 ? `${right} of ${of} (${Math.floor((100 * right) / of)}%)` : "-");
  const met = (bar) => (bar.met === null ? "-" : bar.met ? "met" : "missed");
  const cells = data.bars.map((bar) =>
    [bar.rows, `${bar.bar}%`, share(bar.all), share(bar.predicted), met(bar)]);
  section("score", "The score",
    "How many rows came out as published, and the bar that was set before the runs. No figure of the model was chosen \
by a predicted row.",
    table(["rows", "bar", "all that were run", "predicted", ""], cells));
}

// --- 2. Changes ---

function changes() {
  const found = rows().filter(hasChange);
  if (found.length === 0) return;
  const part = section("changes", "Changes, all studies",
    `Each point is a change in percent: the published change to the right, the simulated one upwards. Positive is \
better. On the solid line both are equal. Between the dotted lines they differ by a factor of at most \
${data.size_factor}. Beyond ±${LINEAR}% the axes are logarithmic. Click a point to see its study.`);
  const place = panel(part, null);
  const on = (value) => Math.asinh(value / LINEAR);
  const steps = [-10000, -3000, -1000, -300, -100, -30, -10, -3, 0, 3, 10, 30, 100, 300, 1000, 3000];
  const from = (low, high, value) => [on(value) - on(low), on(high) - on(value)];
  drawers.push(() => {
    const ends = found.flatMap((row) => [row.published_change_pct, simulated(row)]);
    const [least, most] = [Math.min(-3, ...ends) * 1.2, Math.max(3, ...ends) * 1.2];
    const axis = (title) => ({
      title: { text: title }, range: [on(least), on(most)],
      tickvals: steps.map(on), ticktext: steps.map((step) => `${step}%`),
    });
    const curve = Array.from({ length: 121 }, (_, step) => on(least) + ((on(most) - on(least)) * step) / 120);
    const scaled = (by) => (
      { x: curve, y: curve.map((x) => on(LINEAR * Math.sinh(x) * by)), dash: by === 1 ? "solid" : "dot" });
    const point = (row) => {
      const [x, y] = [row.published_change_pct, simulated(row)];
      const interval = row.simulated.change_95_pct, spread = row.published_deviation_pct;
      return {
        x: on(x), y: on(y), key: row.study, x_bar: spread === null ? null : from(x - spread, x + spread, x),
        y_bar: interval && from(interval[0], interval[1], y),
        told: `${row.study}: ${row.id}: published ${signed(x)}, simulated ${signed(y)}, ${row.verdict}`,
      };
    };
    beside(place, grouped(found, point), {
      xaxis: axis("published"), yaxis: axis("simulated"),
      lines: [1, data.size_factor, 1 / data.size_factor].map(scaled),
      click: (study) => document.getElementById(`study-${study}`)?.scrollIntoView({ behavior: "smooth" }),
    });
  });
}

// --- 3. Levels ---

function levels() {
  const found = rows().filter((row) => row.series === null && row.published_base > 0 && row.simulated?.base > 0);
  if (found.length === 0) return;
  const part = section("levels", "Levels, all studies",
    `Each point is a value without the change, in the unit of its table: the published value to the right, the \
simulated one upwards. The axes are logarithmic. Between the dotted lines they differ by a factor of at most \
${data.level_factor}.`);
  const place = panel(part, null);
  drawers.push(() => {
    const values = found.flatMap((row) => [row.published_base, row.simulated.base]);
    const ends = [Math.min(...values) / 2, Math.max(...values) * 2];
    const axis = (title) => (
      { type: "log", title: { text: title }, range: ends.map(Math.log10), exponentformat: "power", dtick: 1 });
    const point = (row) => ({
      x: row.published_base, y: row.simulated.base,
      told: `${row.study}: ${row.id}: published ${digits(row.published_base)}, simulated ${digits(row.simulated.base)}`,
    });
    const points = found.map(point);
    beside(place, [{ name: "a row's baseline", color: mark(0), points }], {
      xaxis: axis("published"), yaxis: axis("simulated"),
      lines: [1, data.level_factor, 1 / data.level_factor].map((by) =>
        ({ x: ends, y: ends.map((value) => value * by), dash: by === 1 ? "solid" : "dot" })),
    });
  });
}

// --- 4. Search statistics ---

function searches() {
  const columns = data.columns;
  if (columns.length === 0) return;
  const part = section("searches", "Search statistics",
    "The values of a column of a published table: published to the right, simulated upwards. The column is judged by \
the rank correlation. If each point further right is also higher, the correlation is 1.");
  const chosen = { column: 0 };
  const shown = columns.map(({ study, name }, index) => [String(index), `${study}: ${name}`]);
  part.append(element("div", { class: "controls" },
    select("Column", shown, "0", (value) => { chosen.column = Number(value); redraw(); })));
  const note = element("p", { class: "note" });
  const place = panel(part, null);
  part.append(note);
  drawers.push(() => {
    const { study, name, values, undefined: without, correlation, status } = columns[chosen.column];
    const found = data.studies[study].rows.filter((row) => row.series === name);
    const both = (row) => (row.simulated?.base ?? null) !== null && row.published_base !== null;
    const points = found.filter(both).map((row) => ({
      x: row.published_base, y: row.simulated.base,
      told: `${row.id}: published ${digits(row.published_base)}, simulated ${digits(row.simulated.base)}`,
    }));
    note.textContent = `${values} values, ${without} of them undefined because nothing was searched; rank correlation ${
      correlation === null ? "-" : correlation.toFixed(3)}; ${status}.`;
    beside(place, [{ name, color: mark(0), points }], {
      xaxis: { title: { text: "published, %" } }, yaxis: { title: { text: "simulated, %" } }, lines: [],
    });
  });
}

// --- 5. Each study ---

function studies() {
  const part = section("studies", "Each study",
    "Changes in percent; positive is better. Published changes have their standard deviation. Simulated changes have \
the 95% interval of their mean, if there are several seeds.");
  for (const [name, study] of Object.entries(data.studies)) part.append(one(name, study));
}

function one(name, study) {
  const made = element("div", { id: `study-${name}`, class: "study" },
    element("h3", {}, `${name} (${study.mechanism})`), note(study.question));
  const found = study.rows.filter(hasChange);
  if (found.length > 0) {
    const place = panel(made, null);
    drawers.push(() => drawChanges(place, found));
  }
  const notes = study.misses.map(({ miss }) => note(`Known miss: ${miss}`));
  if (study.calibration) notes.push(note(`Calibrated by ${study.calibration.row}: ${study.calibration.what}.`));
  const run = study.rows.filter((row) => row.simulated);
  if (run.length < study.rows.length) {
    notes.push(note(`Rows that were not run: ${study.rows.length - run.length} of ${study.rows.length}.`));
  }
  const interval = (ends) => (ends ? `${signed(ends[0])} to ${signed(ends[1])}` : "-");
  const cells = run.map((row) => [
    row.id, signed(row.published_change_pct), signed(row.published_change_pct === null ? null : simulated(row)),
    interval(row.simulated.change_95_pct), digits(row.published_base), digits(row.simulated.base),
    row.seeds, row.verdict, row.status,
  ]);
  const header = ["row", "published", "simulated", "95% interval", "baseline, published", "simulated",
    "seeds", "verdict", "status"];
  const summary = `${run.length} rows on ${study.machine}, against ${study.tables.join(", ")}`;
  made.append(...notes, element("details", {}, element("summary", {}, summary), table(header, cells)));
  return made;
}

function drawChanges(place, found) {
  const side = (value, low, high) => ({ value, low, high });
  const all = found.map((row) => {
    const published = row.published_change_pct, spread = row.published_deviation_pct ?? 0;
    const interval = row.simulated.change_95_pct;
    return {
      label: row.id, told: `${row.verdict}, ${row.status}`,
      sides: [side(published, published - spread, published + spread),
        side(simulated(row), interval?.[0] ?? null, interval?.[1] ?? null)],
    };
  });
  intervals(place, all, [
    { name: "published", color: "#d55e00", symbol: "diamond" },
    { name: "simulated", color: "#0072b2", symbol: "circle" },
  ], { ticksuffix: "%", zeroline: true, zerolinewidth: 2 });
}

// --- The page ---

function heading() {
  const { run, rows: all } = data.score;
  document.title = "roost reproduce: published beside simulated";
  const studies = Object.values(data.studies);
  const programs = [...new Set(studies.map((study) => study.program).filter((program) => program))].join("; ");
  document.getElementById("report").append(element("h1", {}, "Published results beside simulated ones"),
    note(`${run} of ${all} rows of ${studies.length} studies were run, by roost ${programs}.`));
}

function repeat() {
  section("repeat", "To repeat it",
    "Run this in a clone of the repository. published/recipes says which runs each row has.",
    element("pre", {}, data.command));
}

start([heading, score, changes, levels, searches, studies, repeat]);
