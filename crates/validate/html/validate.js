// Draws the page that compares the simulation with a real kernel.

/** The verdicts of comparisons, each with its colour. */
const VERDICTS = [
  ["size", "close", "#0072b2"], ["overlap", "intervals overlap", "#56b4e9"], ["differs", "differs", "#d55e00"],
  ["rare", "too rare to compare", "#999999"],
];
/** Where a count of 0 is drawn, because counts have logarithmic axes. */
const NEVER = 0.1;

/** What the reader has chosen: a scenario, a shape of machine (empty: all), and the quantity that has its own chart. */
const chosen = { scenario: "", shape: "", quantity: "" };

const all = () => data.suite.agreements.flatMap(({ scenario, shape, quantities }) =>
  quantities.map((quantity) => ({ scenario, shape, ...quantity })));
const isChosen = (of) => (chosen.scenario === "" || of.scenario === chosen.scenario)
  && (chosen.shape === "" || of.shape === chosen.shape);
const names = (key) => [...new Set(data.suite.agreements.map((agreement) => agreement[key]))];
/** A mean and half the width of its interval, rounded to two digits of that half. */
function told({ mean, interval }) {
  const half = interval ? interval[1] - mean : 0;
  if (half <= 0) return digits(mean);
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(half)));
  return `${mean.toFixed(decimals)} ± ${half.toFixed(decimals)}`;
}

// --- 1. Which scenarios agree ---

function scenarios() {
  const part = section("scenarios", "Which scenarios agree",
    "Each cell is a scenario on a machine. It says how many percent of the counters that can be compared agree. Click \
a row to see only this scenario in the charts below. Click it again to see all.");
  const place = panel(part, null);
  drawers.push(() => {
    const rows = names("scenario"), shapes = names("shape");
    const cell = (scenario, shape) => {
      const found = data.suite.agreements.find((of) => of.scenario === scenario && of.shape === shape);
      return found && found.compared > 0 ? (100 * found.agreeing) / found.compared : null;
    };
    heat(place, {
      x: shapes, rows: rows.map((name) => ({ name, label: name, node: 0 })), most: 100, unit: "% agree", xaxis: {},
      z: rows.map((scenario) => shapes.map((shape) => cell(scenario, shape))), hover: "on %{x}: %{z:.1f}% agree",
      click: (row) => choose({ scenario: chosen.scenario === rows[row] ? "" : rows[row] }),
    });
  });
}

/** Applies a choice to the controls and the charts. */
function choose(choice) {
  Object.assign(chosen, choice);
  for (const key of ["scenario", "shape", "quantity"]) {
    const control = document.querySelector(`select[data-of=${key}]`);
    if (control) control.value = chosen[key];
  }
  redraw();
}

function control(label, key, values, every) {
  const options = values.map((value) => [value, value]);
  const made = select(label, every === null ? options : [["", every], ...options], chosen[key],
    (value) => choose({ [key]: value }));
  made.querySelector("select").dataset.of = key;
  return made;
}

// --- 2. Simulated beside real ---

function agreement() {
  const part = section("agreement", "Simulated beside real",
    "Each point is a quantity of a scenario, with 95% intervals: its mean in the real kernel to the right, its \
simulated mean upwards. On the solid line both are equal. Between the dotted lines they are close. Click a point to \
see its quantity in every scenario, below.");
  part.append(element("div", { class: "controls" },
    control("Scenario", "scenario", names("scenario"), "all"), control("Machine", "shape", names("shape"), "all")));
  const charts = element("div", { class: "charts" });
  part.append(charts);
  const { relative, points } = data.tolerances;
  const counts = panel(charts, `Counters per run (0 is drawn at ${NEVER})`);
  const shares = panel(charts, "Shares of wakeups and of run time, %");
  const placement = panel(charts, "Placement: share of run time by LLC and node, %");
  drawers.push(() => {
    const found = all().filter(isChosen);
    const of = (...kinds) => found.filter(({ kind }) => kinds.includes(kind));
    const most = Math.max(10, ...of("count").flatMap(({ sim, real }) => [sim.mean, real.mean])) * 2;
    const axis = (title) => (
      { type: "log", title: { text: title }, range: [Math.log10(NEVER) - 0.2, Math.log10(most)] });
    const ends = [NEVER, most];
    beside(counts, groups(of("count"), (value) => Math.max(value, NEVER)), {
      xaxis: axis("real"), yaxis: axis("simulated"), click: show,
      lines: [{ x: ends, y: ends }, ...[1 - relative, 1 + relative].map((by) =>
        ({ x: ends, y: ends.map((value) => value * by), dash: "dot" }))],
    });
    percents(shares, of("share", "ratio"), data.tolerances.share);
    percents(placement, of("placement"), points);
  });
}

function percents(place, found, points) {
  const axis = (title) => ({ title: { text: title }, range: [-3, 103] });
  const ends = [0, 100];
  beside(place, groups(found, (value) => value), {
    xaxis: axis("real"), yaxis: axis("simulated"), click: show,
    lines: [{ x: ends, y: ends }, ...[-points, points].map((by) =>
      ({ x: ends, y: ends.map((value) => value + by), dash: "dot" }))],
  });
}

function groups(found, on) {
  const bar = (side) => side.interval
    && [on(side.mean) - on(side.interval[0]), on(side.interval[1]) - on(side.mean)];
  return VERDICTS.map(([verdict, name, color]) => ({
    name, color, points: found.filter((of) => of.verdict === verdict).map((of) => ({
      x: on(of.real.mean), y: on(of.sim.mean), x_bar: bar(of.real), y_bar: bar(of.sim), key: of.name,
      told: `${of.name}: simulated ${told(of.sim)}, real ${told(of.real)}, ${of.scenario} on ${of.shape}`,
    })),
  })).filter(({ points }) => points.length > 0);
}

/** Shows a quantity in its own chart. */
function show(quantity) {
  if (quantity === null) return;
  choose({ quantity });
  document.getElementById("quantity").scrollIntoView({ behavior: "smooth" });
}

// --- 3. One quantity ---

function quantity() {
  const part = section("quantity", "One quantity in every scenario",
    "Means with 95% intervals, for each scenario in which the simulation or the kernel has the quantity. The choice \
above applies here too.");
  const known = [...new Set(all().map(({ name }) => name))].sort();
  chosen.quantity = known.includes("migrations") ? "migrations" : known[0] ?? "";
  part.append(element("div", { class: "controls" }, control("Quantity", "quantity", known, null)));
  const place = panel(part, null);
  drawers.push(() => {
    const found = all().filter((of) => of.name === chosen.quantity && isChosen(of));
    const side = ({ mean, interval }) => ({ value: mean, low: interval?.[0] ?? null, high: interval?.[1] ?? null });
    const rows = found.map((of) => ({
      label: `${of.scenario} on ${of.shape}`, sides: [side(of.real), side(of.sim)],
      told: VERDICTS.find(([verdict]) => verdict === of.verdict)[1],
    }));
    intervals(place, rows, [
      { name: "real", color: "#d55e00", symbol: "diamond" },
      { name: "simulated", color: "#0072b2", symbol: "circle" },
    ], { rangemode: "tozero" });
  });
}

// --- 4. What differs ---

function differences() {
  const part = section("differences", "What differs",
    "All quantities whose means are not close and whose intervals do not overlap. The choice above applies here too.");
  const place = element("div", {});
  part.append(place);
  drawers.push(() => {
    const found = all().filter((of) => of.verdict === "differs" && isChosen(of));
    const rows = found.map((of) => [of.name, of.scenario, of.shape, told(of.sim), told(of.real)]);
    place.replaceChildren(rows.length === 0 ? element("p", { class: "note" }, "Nothing.")
      : table(["quantity", "scenario", "machine", "simulated", "real"], rows));
  });
}

// --- The page ---

function heading() {
  const { agreeing, compared, missed, holds } = data.suite;
  document.title = data.title;
  const share = compared > 0 ? ` (${((100 * agreeing) / compared).toFixed(1)}%)` : "";
  const verdict = holds ? "every bar was met" : "bars were missed:";
  document.getElementById("report").append(element("h1", {}, data.title),
    element("p", { class: "note" }, `${agreeing} of ${compared} counters agree${share}; ${verdict}`),
    ...missed.map((bar) => element("p", { class: "note" }, bar)));
}

function repeat() {
  section("repeat", "To repeat it",
    "--save FILE keeps what the kernel did; --from FILE compares it again. docs/validation.md explains the tolerances \
and the bars.", element("pre", {}, data.command));
}

start([heading, scenarios, agreement, quantity, differences, repeat]);
