// Draws the report of a sweep from its data.

/** The chosen metric by name, or the first metric of each workload. */
const chosen = { metric: "" };
/** Largest number of seeds that is suggested. */
const MANY_SEEDS = 1000;

const names = (key) => [...new Set(data.changes.map((change) => change[key]))];
const isChosen = (change) => (chosen.metric === "" ? change.first : change.metric === chosen.metric);
const of = (machine, workload) => data.changes.filter(
  (change) => isChosen(change) && change.machine === machine && change.workload === workload);
const percent = (value) => `${value < 0 ? "" : "+"}${value.toFixed(Math.abs(value) < 10 ? 2 : 1)}%`;

/** A map of machines (top to bottom) and workloads (left to right). `cell` returns a cell's colour and text, if any. */
function grid(place, cell, { colorscale, most, unit, ticks }) {
  const machines = names("machine"), workloads = names("workload");
  const cells = machines.map((machine) => workloads.map((workload) => cell(of(machine, workload), machine, workload)));
  const each = (key) => cells.map((row) => row.map((found) => found?.[key] ?? null));
  const { text: color, faint } = colours();
  const annotations = cells.flatMap((row, y) => row.map((found, x) => ({
    x, y, text: text(found?.label ?? ""), showarrow: false,
    font: { size: 11, color: found?.z === null ? faint : color },
  })));
  draw(place, [{
    type: "heatmap", z: each("z"), zmin: most === undefined ? undefined : -most, zmax: most, colorscale,
    xgap: 2, ygap: 2,
    customdata: cells.map((row, y) => row.map((found, x) =>
      text(`${machines[y]}, ${workloads[x]}: ${found?.told ?? "nothing was measured"}`))),
    hovertemplate: "%{customdata}<extra></extra>", hoverongaps: true, showscale: unit !== undefined,
    colorbar: { title: { text: unit ?? "", side: "right" }, thickness: 10, outlinewidth: 0 }, ...ticks,
  }], {
    height: 90 + 34 * machines.length + 6 * Math.max(...workloads.map((name) => Math.min(name.length, 40))),
    annotations,
    xaxis: { tickvals: workloads.map((_, x) => x), ticktext: workloads.map(text), tickangle: -45, showgrid: false,
      zeroline: false, range: [-0.5, workloads.length - 0.5] },
    yaxis: { tickvals: machines.map((_, y) => y), ticktext: machines.map(text), showgrid: false, zeroline: false,
      range: [machines.length - 0.5, -0.5] },
  });
}

/** Colours from worse to better, which colour-blind readers can distinguish. */
function diverging() {
  const middle = dark.matches && !printing.matches ? "#2a3138" : "#f2f4f5";
  return [[0, "#d55e00"], [0.5, middle], [1, "#0f9fb8"]];
}

// --- 1. Change ---

function change() {
  const part = section("change", "Change by machine and workload",
    "Each cell shows the change of the mean from the first scheduler, in percent; positive is better. A cell has a \
colour if the two 95% confidence intervals do not overlap. The other changes may be chance. All maps have the same \
scale.");
  const metrics = names("metric").map((name) => [name, name]);
  part.append(element("div", { class: "controls" },
    select("Metric", [["", "the first of each workload"], ...metrics], chosen.metric,
      (value) => { chosen.metric = value; redraw(); })));
  const charts = element("div", { class: "charts" });
  part.append(charts);
  const others = [...new Set(data.changes.filter((found) => found.significant !== null || found.change_pct !== null)
    .map((found) => found.scheduler))];
  if (others.length === 0) charts.append(note("There is only one scheduler, so there is nothing to compare."));
  for (const scheduler of others) {
    const place = panel(charts, scheduler);
    drawers.push(() => {
      const real = data.changes.filter((found) => isChosen(found) && found.significant);
      const most = Math.max(1, ...real.map((found) => Math.abs(found.change_pct ?? 0)));
      grid(place, (all) => {
        const found = all.find((other) => other.scheduler === scheduler);
        if (!found || found.change_pct === null) return null;
        const { change_pct, significant, metric, runs } = found;
        return {
          z: significant ? change_pct : null, label: `${percent(change_pct)}${significant ? "*" : ""}`,
          told: `${metric} ${percent(change_pct)}, ${
            significant ? "intervals do not overlap" : "may be chance"}, ${runs} runs`,
        };
      }, { colorscale: diverging(), most, unit: "%" });
    });
  }
}

// --- 2. What wins where ---

/** The best of `all`, and its rivals: those whose intervals overlap with the interval of the best. */
function best(all) {
  const sign = all[0]?.better === "higher" ? -1 : 1;
  const [first, ...rest] = [...all].sort((one, other) => sign * (one.mean - other.mean));
  if (!first) return null;
  const apart = (other) => first.low !== null && other.low !== null
    && (first.high < other.low || other.high < first.low);
  return { first, rivals: rest.filter((other) => !apart(other)) };
}

function winners() {
  const schedulers = names("scheduler");
  if (schedulers.length < 2) return;
  const part = section("winners", "What wins where",
    "Each cell names the scheduler with the best mean, in its colour, if its interval overlaps with no other. A cell \
without a colour says how many schedulers are alike: the best one, and those whose intervals overlap with its own.");
  const place = panel(part, null);
  drawers.push(() => {
    const last = Math.max(schedulers.length - 1, 1);
    const colorscale = schedulers.flatMap((_, index) => {
      const color = `${mark(index)}90`;
      return [[index / schedulers.length, color], [(index + 1) / schedulers.length, color]];
    });
    grid(place, (all) => {
      const found = best(all);
      if (!found) return null;
      const { first, rivals } = found;
      const tied = [first, ...rivals].map((one) => one.scheduler);
      const label = rivals.length === 0 ? first.scheduler : `${tied.length} alike`;
      return {
        z: rivals.length === 0 ? schedulers.indexOf(first.scheduler) : null, label: shortened(label),
        told: `${first.metric} ${digits(first.mean)} ${first.unit}: ${tied.join(", ")}`,
      };
    }, { colorscale, ticks: { zmin: -0.5, zmax: last + 0.5 } });
  });
}

const shortened = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

// --- 3. What is uncertain ---

/** Half of the widths of both intervals, in percent of the baseline's mean. `null` if a side has only one run. */
function width(found, baseline) {
  if (found.low === null || baseline.low === null || baseline.mean === 0) return null;
  return (50 * (found.high - found.low + baseline.high - baseline.low)) / Math.abs(baseline.mean);
}

/** Number of runs with which the intervals would not overlap, if the means stay. Widths shrink with its square root. */
function seeds(found, half) {
  if (half === null) return "at least 2";
  const needed = Math.ceil(found.runs * (half / Math.abs(found.change_pct)) ** 2);
  return found.change_pct === 0 || needed > MANY_SEEDS ? `more than ${MANY_SEEDS}` : String(needed);
}

function uncertain() {
  const part = section("uncertain", "What is uncertain",
    "Changes that may be chance, the widest intervals first. The last column estimates how many seeds would be enough \
to tell, if means and spread stay as they are.");
  const place = element("div", {});
  part.append(place);
  drawers.push(() => {
    const rows = data.changes.filter((found) => isChosen(found) && found.change_pct !== null && !found.significant)
      .map((found) => {
        const baseline = of(found.machine, found.workload).find((other) => other.metric === found.metric);
        return { found, half: width(found, baseline) };
      }).sort((one, other) => (other.half ?? Infinity) - (one.half ?? Infinity));
    const cells = rows.map(({ found, half }) => [
      found.machine, found.workload, found.scheduler, found.metric, percent(found.change_pct),
      half === null ? "-" : `± ${half.toFixed(2)}%`, found.runs, seeds(found, half),
    ]);
    const header = ["machine", "workload", "scheduler", "metric", "change", "intervals", "seeds", "enough"];
    place.replaceChildren(rows.length === 0
      ? element("p", { class: "note" }, "Nothing. No intervals overlap.") : table(header, cells));
  });
  if (data.failed.length > 0) {
    const rows = data.failed.map((failed) =>
      [failed.machine, failed.workload, failed.scheduler, failed.runs, failed.error]);
    part.append(element("h3", {}, "Runs that failed"),
      table(["machine", "workload", "scheduler", "runs", "error"], rows));
  }
}

// --- 4. All figures, and how to repeat them ---

function figures() {
  const rows = data.changes.map((found) => [
    found.machine, found.workload, found.metric, found.unit, found.scheduler, digits(found.mean), digits(found.stddev),
    found.runs, found.change_pct === null ? "-" : `${percent(found.change_pct)}${found.significant ? "*" : ""}`,
  ]);
  const header = ["machine", "workload", "metric", "unit", "scheduler", "mean", "stddev", "runs", "change"];
  section("figures", "All figures", "Every metric of every machine, workload and scheduler. A * says that the two \
intervals do not overlap.", element("details", {}, element("summary", {}, `${rows.length} rows`), table(header, rows)));
}

function repeat() {
  section("repeat", "To repeat it", "With this version and these inputs, the plan gives the same file again, byte for \
byte. The hashes tell whether inputs are the same.",
    element("pre", {}, data.plan.trimEnd()), element("pre", {}, `roost ${data.version}`),
    element("details", {}, element("summary", {}, "Inputs"), element("pre", {}, data.inputs)));
}

// --- The page ---

function heading() {
  const count = (key) => `${names(key).length} ${key}${names(key).length === 1 ? "" : "s"}`;
  const title = `${count("machine")} × ${count("workload")} × ${count("scheduler")}`;
  document.title = `roost sweep: ${title}`;
  document.getElementById("report").append(element("h1", {}, title),
    element("p", { class: "note" }, `${data.runs} runs, simulated by roost ${data.version}`));
}

start([heading, change, winners, uncertain, figures, repeat]);
