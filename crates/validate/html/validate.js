// Draws the agreement of the simulation with a real kernel from its data.

/** What a comparison says, with its colour. */
const VERDICTS = [
  ["size", "close", "#0072b2"], ["overlap", "intervals overlap", "#56b4e9"], ["differs", "differs", "#d55e00"],
  ["rare", "too rare to compare", "#999999"],
];
/** Counts have logarithmic axes: what never happened stands here. */
const NEVER = 0.1;

/** What is chosen: a scenario, a shape (empty: all), and the quantity that is shown by itself. */
const chosen = { scenario: "", shape: "", quantity: "" };

const all = () => data.suite.agreements.flatMap(({ scenario, shape, quantities }) =>
  quantities.map((quantity) => ({ scenario, shape, ...quantity })));
const isChosen = (of) => (chosen.scenario === "" || of.scenario === chosen.scenario)
  && (chosen.shape === "" || of.shape === chosen.shape);
const names = (key) => [...new Set(data.suite.agreements.map((agreement) => agreement[key]))];
/** A mean with half its interval, both as exact as two digits of that half. */
function told({ mean, interval }) {
  const half = interval ? interval[1] - mean : 0;
  if (half <= 0) return digits(mean);
  const decimals = Math.max(0, 1 - Math.floor(Math.log10(half)));
  return `${mean.toFixed(decimals)} ± ${half.toFixed(decimals)}`;
}

// --- 1. Which scenarios agree ---

function scenarios() {
  const part = section("scenarios", "Which scenarios agree",
    "A cell is a scenario on a machine: how many of the counters that could be compared agree, in percent. A click on a \
row shows this scenario alone in the charts below, another one shows all.");
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

/** Takes a choice over into the controls and the charts. */
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
    "A point is a quantity of a scenario: its mean in the real kernel to the right, simulated upwards, with 95% \
intervals. On the solid line both are the same; between the dotted lines they are close. A click on a point shows its \
quantity in every scenario below.");
  part.append(element("div", { class: "controls" },
    control("Scenario", "scenario", names("scenario"), "all"), control("Machine", "shape", names("shape"), "all")));
  const charts = element("div", { class: "charts" });
  part.append(charts);
  const { relative, points } = data.tolerances;
  const counts = panel(charts, `Counters, a run (never: ${NEVER})`);
  const shares = panel(charts, "Shares of wakeups and of run time, %");
  const placement = panel(charts, "Placement: share of run time by LLC and node, %");
  drawers.push(() => {
    const found = all().filter(isChosen);
    const of = (...kinds) => found.filter(({ kind }) => kinds.includes(kind));
    const most = Math.max(10, ...of("count").flatMap(({ sim, real }) => [sim.mean, real.mean])) * 2;
    const axis = (title) => ({ type: "log", title: { text: title }, range: [Math.log10(NEVER) - 0.2, Math.log10(most)] });
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

/** Shows a quantity by itself. */
function show(quantity) {
  if (quantity === null) return;
  choose({ quantity });
  document.getElementById("quantity").scrollIntoView({ behavior: "smooth" });
}

// --- 3. One quantity ---

function quantity() {
  const part = section("quantity", "One quantity in every scenario",
    "Means with 95% intervals, where simulation or kernel have it; the choice above holds here too.");
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
      { name: "real", color: "#d55e00", symbol: "diamond" }, { name: "simulated", color: "#0072b2", symbol: "circle" },
    ], { rangemode: "tozero" });
  });
}

// --- 4. What differs ---

function differences() {
  const part = section("differences", "What differs",
    "Everything whose means are not close and whose intervals do not overlap; the choice above holds here too.");
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
    "What the kernel did is kept by --save, and set beside the model again by --from; docs/validation.md has tolerances, \
bars and their reasons.", element("pre", {}, data.command));
}

start([heading, scenarios, agreement, quantity, differences, repeat]);
