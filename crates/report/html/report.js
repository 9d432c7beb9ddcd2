// Draws the report of a comparison from its data.

/** Colours of nodes. They differ from the colours of schedulers, so that the two are not confused. */
const NODES = ["#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#999999", "#b2a200", "#7a5195", "#2f9e8f"];
/** The most counters that the chart of differences shows. */
const MOST_COUNTERS = 24;
/** Bytes of a page of memory. */
const PAGE = 4096;

/** What the reader has chosen: schedulers that are hidden, and what the charts of occupancy and migrations show. */
const chosen = { hidden: new Set(), place: "llc", tasks: -1, what: "both", moves: "llc" };
const shown = () => data.schedulers.map((_, index) => index).filter((index) => !chosen.hidden.has(index));

// --- Charts of schedulers ---

/**
 * Draws a chart for each scheduler, side by side. `has` tells whether a scheduler has one. `common` computes from all
 * shown schedulers what the charts share, such as the scale. `one` draws the chart of one scheduler with that.
 */
function bySchedulers(parent, has, common, one) {
  const charts = element("div", { class: "charts" });
  parent.append(charts);
  const places = data.schedulers.map((scheduler, index) =>
    has(index) ? panel(charts, scheduler.name, index) : null);
  drawers.push(() => {
    const scale = common(shown().filter((index) => places[index]));
    places.forEach((place, index) => {
      if (!place) return;
      place.parentElement.hidden = chosen.hidden.has(index);
      if (!chosen.hidden.has(index)) one(place, index, scale);
    });
  });
}

// --- 1. Results ---

function results() {
  const read = data.schedulers.length > 1
    ? `Each dot is a run with its own seed. The diamond is the mean of the runs, the bar its 95% confidence interval. \
The change is from ${data.schedulers[0].name}; a positive change is better. A * says that the two intervals do not \
overlap.`
    : "Each dot is a run with its own seed. The diamond is the mean of the runs, the bar its 95% confidence interval.";
  const part = section("results", "Results", read);
  const charts = element("div", { class: "charts" });
  part.append(charts);
  for (const metric of data.metrics) {
    const place = panel(charts, `${metric.name}, ${metric.unit}: ${metric.better} is better`);
    drawers.push(() => result(place, metric));
  }
  const rows = data.metrics.flatMap((metric) => data.schedulers.map((scheduler, index) => [
    index === 0 ? metric.name : "", index === 0 ? metric.unit : "", scheduler.name, digits(metric.mean[index]),
    digits(metric.stddev[index]), change(metric, index),
  ]));
  part.append(table(["metric", "unit", "scheduler", "mean", "stddev", "change"], rows));
}

function change(metric, index) {
  if (index === 0) return "baseline";
  const percent = metric.change_pct[index];
  if (percent === null) return "-";
  return `${percent < 0 ? "" : "+"}${percent.toFixed(2)}%${metric.significant[index] ? "*" : ""}`;
}

function result(place, metric) {
  const all = shown();
  const traces = all.flatMap((index, row) => {
    const runs = metric.samples[index].map((value, run) => [value, run]).filter(([value]) => value !== null);
    const mean = metric.mean[index], low = metric.low[index], high = metric.high[index];
    const bar = { type: "data", symmetric: false, array: [high - mean], arrayminus: [mean - low] };
    return [{
      type: "scatter", mode: "markers", x: runs.map(([value]) => value), y: runs.map(() => row),
      text: runs.map(([, run]) => `seed ${data.seeds[run]}`), hovertemplate: "%{x:.6~g} (%{text})<extra></extra>",
      marker: { color: mark(index), opacity: 0.5, size: 8 },
    }, {
      type: "scatter", mode: "markers", x: mean === null ? [] : [mean], y: mean === null ? [] : [row],
      marker: { color: mark(index), size: 12, symbol: "diamond" }, error_x: low === null ? undefined : bar,
      hovertemplate: "mean %{x:.6~g}<extra></extra>",
    }];
  });
  draw(place, traces, {
    height: 70 + 34 * all.length, xaxis: { nticks: 6 },
    yaxis: {
      tickvals: all.map((_, row) => row), ticktext: all.map((index) => broken(text(data.schedulers[index].name))),
      range: [all.length - 0.5, -0.5], zeroline: false,
    },
  });
}

/** Breaks a long name into lines, one for each switch. */
const broken = (name) => (name.length > 18 ? name.replaceAll("+", "<br>+") : name);

// --- 2. Occupancy ---

/** The rows for the chosen kind of place: their names, their node, and their CPU or LLCs. */
function places() {
  const { llcs, nodes } = data.machine;
  const llc = (index) => `node ${nodes[llcs[index].node]} LLC ${index}`;
  if (chosen.place === "llc") {
    return data.order.map((index) => ({ name: llc(index), label: llc(index), node: llcs[index].node, llcs: [index] }));
  }
  if (chosen.place === "node") {
    return nodes.map((name, node) => ({
      name: `node ${name}`, label: `node ${name}`, node,
      llcs: llcs.flatMap((of, index) => (of.node === node ? [index] : [])),
    })).filter((row) => row.llcs.length > 0);
  }
  const of = Number(chosen.place);
  return llcs[of].cpus.map((cpu) => ({
    name: `${llc(of)} CPU ${data.machine.cpus[cpu]}`, label: `CPU ${data.machine.cpus[cpu]}`, node: 0, cpu,
  }));
}

/** The mean number of tasks of a row, in each window of time. */
function occupied(run, row) {
  const kinds = chosen.what === "both" ? ["running", "waiting"] : [chosen.what];
  const grids = (of, rows) => kinds.flatMap((kind) => rows.map((index) => of[kind][index]));
  const windows = run.edges_ms.length - 1;
  const cells = row.cpu !== undefined ? grids(run.cpus, [row.cpu])
    : chosen.tasks >= 0 ? grids(group(run), row.llcs)
    : grids(run.cpus, row.llcs.flatMap((index) => data.machine.llcs[index].cpus));
  return Array.from({ length: windows }, (_, window) => sum(cells.map((of) => (of ? of[window] : 0))) / 1000);
}

/** The chosen tasks in this run. */
function group(run) {
  const { by, name } = data.tasks[chosen.tasks];
  return run.groups.find((other) => other.by === by && other.name === name) ?? { running: [], waiting: [] };
}

const isTimed = (index) => data.timelines[index] !== null;

function occupancy() {
  if (!data.timelines.some((run) => run)) return;
  const part = section("occupancy", "Occupancy over time",
    `The first run of each scheduler (seed ${data.seeds[0]}). Each row is a place; rows are grouped by node. Time goes \
to the right. The darker a cell (with a dark background: the brighter), the more tasks ran or waited there. All \
schedulers have the same scale. Measurement begins at the dotted line. Click an LLC to see its CPUs, and a CPU to see \
all LLCs.`);
  const controls = element("div", { class: "controls" });
  part.append(controls);
  const fill = () => {
    const llcs = data.order.map((index) => [String(index), `CPUs of LLC ${index}`]);
    const tasks = data.tasks.map((of, index) => [String(index), `${of.by}: ${of.name}`]);
    const ofCpus = !["llc", "node"].includes(chosen.place);
    controls.replaceChildren(
      select("Rows", [["llc", "LLCs"], ["node", "nodes"], ...llcs], chosen.place, (value) => go(value)),
      select("Tasks", ofCpus || tasks.length === 0 ? [["-1", "all"]] : [["-1", "all"], ...tasks], String(chosen.tasks),
        (value) => { chosen.tasks = Number(value); redraw(); }),
      select("that", [["both", "run or wait"], ["running", "run"], ["waiting", "wait for a CPU"]], chosen.what,
        (value) => { chosen.what = value; redraw(); }));
  };
  /** Shows other places. Charts of CPUs show all tasks, because kinds of tasks are recorded by LLC only. */
  const go = (place) => {
    chosen.place = place;
    if (!["llc", "node"].includes(place)) chosen.tasks = -1;
    fill();
    redraw();
  };
  fill();
  const end = Math.max(...data.timelines.filter((run) => run).map((run) => run.edges_ms.at(-1)));
  bySchedulers(part, isTimed, (all) => {
    const rows = places();
    const cells = new Map(all.map((index) => [index, rows.map((row) => occupied(data.timelines[index], row))]));
    const highest = (z) => Math.max(...z.map((row) => Math.max(...row)));
    return { rows, cells, most: Math.max(0.001, ...[...cells.values()].map(highest)) };
  }, (place, index, { rows, cells, most }) => {
    const run = data.timelines[index];
    const from = run.measured_from_ms;
    const dotted = { color: colours().text, dash: "dot" };
    const line = { type: "line", yref: "paper", x0: from, x1: from, y0: 0, y1: 1, line: dotted };
    /** A click on an LLC leads to its CPUs. A click on a node or a CPU leads to all LLCs. */
    const next = (row) => (row.cpu === undefined && chosen.place === "llc" ? String(row.llcs[0]) : "llc");
    heat(place, {
      x: run.edges_ms, rows, z: cells.get(index), most, unit: "tasks", shapes: from > 0 ? [line] : [],
      hover: "%{x:.4~g} ms: %{z:.3~g} tasks", xaxis: { title: { text: "ms" }, range: [0, end] },
      click: (row) => go(next(rows[row])),
    });
  });
}

// --- 3. Memory ---

function memory() {
  if (!data.timelines.some((run) => run?.memory)) return;
  const part = section("memory", "Memory",
    "Lines show how much of the workload's memory is on each node. Filled areas show what CPUs transferred per second, \
from their own node (local) and from other nodes (remote). The lower charts show from which node's memory each thread \
read and wrote, and which share of that was local. All schedulers have the same scales.");
  const has = (index) => Boolean(data.timelines[index]?.memory);
  const gib = (run) => run.memory.pages.map((window) => window.map((pages) => (pages * PAGE) / 2 ** 30));
  bySchedulers(part, has, (all) => ({
    most: Math.max(...all.map((index) => Math.max(...gib(data.timelines[index]).flat()))),
    end: Math.max(...all.map((index) => data.timelines[index].edges_ms.at(-1))),
    rate: Math.max(...all.flatMap((index) => rates(data.timelines[index]).map((of) => of.local + of.remote))),
  }), (place, index, { most, end, rate }) => {
    const run = data.timelines[index], pages = gib(run), moved = rates(run), x = run.edges_ms.slice(1);
    const node = (name, number) => ({
      type: "scatter", mode: "lines", name: `node ${name}`, x, y: pages.map((window) => window[number]), yaxis: "y2",
      line: { width: 2, color: NODES[number % NODES.length], dash: number < NODES.length ? "solid" : "dot" },
      hovertemplate: "%{y:.3~g} GiB",
    });
    const area = (name, color, of) => ({
      type: "scatter", mode: "none", name, x, y: moved.map(of), stackgroup: "moved", fillcolor: color,
      hovertemplate: "%{y:.3~g} GB/s",
    });
    draw(place, [
      area("local", "rgba(0,158,115,0.35)", (of) => of.local), area("remote", "rgba(213,94,0,0.45)", (of) => of.remote),
      ...data.machine.nodes.map(node),
    ], {
      height: 300, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, hovermode: "x unified",
      margin: { l: 10, r: 10, t: 10, b: 40 }, hoverlabel: { bgcolor: getComputedStyle(document.body).backgroundColor },
      xaxis: { title: { text: "ms" }, range: [0, end] },
      yaxis: { title: { text: "transferred, GB/s" }, range: [0, rate * 1.05] },
      yaxis2: {
        title: { text: "on the node, GiB" }, overlaying: "y", side: "right", range: [0, most * 1.05], showgrid: false,
        automargin: true, fixedrange: true, tickmode: "auto", nticks: 6,
      },
    });
  });
  accesses(part, has);
}

/** Local and remote GB/s in each window. */
function rates(run) {
  const { local, remote } = run.memory;
  return local.map((_, window) => {
    const seconds = (run.edges_ms[window + 1] - run.edges_ms[window]) / 1000;
    const of = (bytes) => (bytes[window] - (window > 0 ? bytes[window - 1] : 0)) / seconds / 1e9;
    return { local: of(local), remote: of(remote) };
  });
}

function accesses(part, has) {
  const used = (access) => access.local.map((bytes, node) => (bytes + access.remote[node]) / 1e9);
  const has_any = (index) => has(index) && data.timelines[index].accesses.length > 0;
  bySchedulers(part, has_any,
    (all) => Math.max(...all.flatMap((index) => data.timelines[index].accesses.flatMap(used))),
    (place, index, most) => {
      const rows = data.timelines[index].accesses.map((access) => {
        const local = sum(access.local), share = Math.round((100 * local) / Math.max(local + sum(access.remote), 1));
        return { name: `${access.thread}: ${share}% local`, label: `${access.thread}, ${share}% local`, node: 0 };
      });
      const x = data.machine.nodes.map((name) => `node ${name}`);
      heat(place, {
        x, rows, z: data.timelines[index].accesses.map(used), most, unit: "GB", hover: "from %{x}: %{z:.3~g} GB",
        xaxis: {},
      });
    });
}

// --- 4. Migrations ---

function migrations() {
  if (!data.timelines.some((run) => run)) return;
  const part = section("migrations", "Migrations",
    "How often a task ran on the place of a row, and then started on the place of a column. Off the diagonal, the task \
left its cache or node. Only the measured part of the run counts. All schedulers have the same scale.");
  if (!data.timelines.some((run) => run?.migrations.some((row) => row.some((count) => count > 0)))) {
    part.append(note("No task migrated."));
    return;
  }
  part.append(element("div", { class: "controls" },
    select("Between", [["llc", "LLCs"], ["node", "nodes"]], chosen.moves, (value) => {
      chosen.moves = value;
      redraw();
    })));
  const flows = (run) => {
    if (chosen.moves === "llc") return data.order.map((from) => data.order.map((to) => run.migrations[from][to]));
    const { nodes, llcs } = data.machine;
    const made = nodes.map(() => nodes.map(() => 0));
    run.migrations.forEach((row, from) => row.forEach((count, to) => {
      made[llcs[from].node][llcs[to].node] += count;
    }));
    return made;
  };
  const largest = (index) => Math.max(...flows(data.timelines[index]).map((row) => Math.max(...row)));
  bySchedulers(part, isTimed, (all) => Math.max(1, ...all.map(largest)),
    (place, index, most) => {
      const { llcs, nodes } = data.machine;
      const rows = chosen.moves === "node"
        ? nodes.map((name) => ({ name: `from node ${name}`, label: `node ${name}`, short: `node ${name}` }))
        : data.order.map((llc) => ({
          name: `from LLC ${llc} of node ${nodes[llcs[llc].node]}`, label: `LLC ${llc}`, short: `LLC ${llc}`,
          node: llcs[llc].node,
        }));
      heat(place, {
        x: rows.map((row) => row.short), rows, z: flows(data.timelines[index]), most, unit: "migrations",
        square: rows.length <= 32, hover: "to %{x}: %{z:d}", xaxis: { tickangle: -45, tickfont: { size: 10 } },
      });
    });
}

// --- 5. Latencies ---

function latencies() {
  if (!data.timelines.some((run) => run)) return;
  const part = section("latency", "Latency",
    "Percentiles of waits, on a logarithmic scale: at p99, 99% of waits were at most as long as the line says. Lower \
is better. Latencies that a benchmark itself measures are under Results.");
  const charts = element("div", { class: "charts" });
  part.append(charts);
  const kinds = [
    ["wakeup_latency", "From being woken or created to running, us"],
    ["run_delay", "From being queued or preempted to running (run delay), us"],
  ];
  for (const [kind, title] of kinds) {
    const place = panel(charts, title);
    drawers.push(() => {
      const traces = shown().filter(isTimed).map((index) => {
        const { us, count } = data.timelines[index][kind];
        return {
          type: "scatter", mode: "lines+markers", name: text(data.schedulers[index].name), x: data.percentiles, y: us,
          line: { color: mark(index) }, hovertemplate: `%{y:.4~g} us (of ${count})`,
        };
      });
      draw(place, traces, {
        height: 320, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" }, hovermode: "x unified",
        hoverlabel: { bgcolor: getComputedStyle(document.body).backgroundColor },
        xaxis: { type: "category" }, yaxis: { type: "log", title: { text: "us" }, nticks: 6 },
      });
    });
  }
}

// --- 6. Counters ---

/** The ratio of a counter's mean to the baseline's, in doublings. Both are increased by 1, so that 0 can be shown. */
const doublings = (counter, index) => Math.log2(((counter.means[index] ?? 0) + 1) / ((counter.means[0] ?? 0) + 1));
const distance = (counter) => Math.max(...data.schedulers.map((_, index) => Math.abs(doublings(counter, index))));

function counters() {
  const sorted = [...data.counters].sort((one, other) => distance(other) - distance(one));
  const differ = sorted.filter((counter) => distance(counter) > Math.log2(1.01)).slice(0, MOST_COUNTERS);
  const names = data.schedulers.map((scheduler) => scheduler.name);
  const rows = sorted.map((counter) => [counter.name, ...counter.means.map(digits)]);
  const all = element("details", {}, element("summary", {}, `All ${rows.length} counters`),
    table(["counter", ...names], rows));
  if (differ.length === 0) {
    section("counters", "Counters", "Counters of the kernel and the engine, each a mean over the runs.", all);
    return;
  }
  const part = section("counters", "Counters that differ",
    `The ${differ.length} counters that differ most from ${names[0]}, in doublings of the mean: +1 is twice as many, \
-1 half as many. Both means are increased by 1 first, so that 0 can be shown. Section 15 of the kernel model explains \
each counter.`);
  const place = panel(part, null);
  drawers.push(() => {
    const traces = shown().filter((index) => index > 0).map((index) => ({
      type: "bar", orientation: "h", name: text(names[index]), y: differ.map((counter) => text(counter.name)),
      x: differ.map((counter) => doublings(counter, index)), marker: { color: mark(index) },
      text: differ.map((counter) => `${digits(counter.means[0])} → ${digits(counter.means[index])}`),
      textposition: "none", hovertemplate: "%{y}: %{text}<extra></extra>",
    }));
    draw(place, traces, {
      height: 80 + differ.length * (10 + 12 * Math.max(traces.length, 1)), showlegend: true, barmode: "group",
      legend: { orientation: "h", y: 1.01, yanchor: "bottom" }, xaxis: { title: { text: "doublings" } },
      yaxis: { autorange: "reversed", type: "category", tickfont: { size: 10 } },
    });
  });
  part.append(all);
}

// --- 7. To repeat it ---

function repeat() {
  const { figures, guesses } = data.machine;
  const origin = (figure) => figure.source.split(":")[0];
  const kinds = [...new Set(figures.map(origin))].sort();
  const rows = [...figures].sort((one, other) => kinds.indexOf(origin(one)) - kinds.indexOf(origin(other)));
  const count = (kind) => `${figures.filter((figure) => origin(figure) === kind).length} ${kind}`;
  section("repeat", "To repeat it",
    figures.length > 0 ? "With the same version, machine and workload, the command gives the same results again. The \
hashes tell whether they are the same. Each figure of the machine has a source."
      : "The command runs the workload on a real kernel again. Its results differ a little each time.",
    element("pre", {}, data.command), element("pre", {}, data.heading),
    ...guesses.map((guess) => note(`Guessed about the machine: ${guess.assumed} (${guess.name})`)),
    figures.length === 0 ? null : element("details", {},
      element("summary", {}, `${figures.length} figures of the machine: ${kinds.map(count).join(", ")}`),
      table(["figure", "value", "source"], rows.map((figure) => [figure.name, figure.value, figure.source]))));
}

// --- The page ---

function heading() {
  const names = data.schedulers.map((scheduler) => scheduler.name);
  document.title = `${data.workload} on ${data.machine.name}: ${names.join(", ")}`;
  const report = document.getElementById("report");
  report.append(element("h1", {}, `${data.workload} on ${data.machine.name}`),
    note(data.heading.split("\n").filter((line) => /^PARTIAL|^runs of each/.test(line)).join(" ")),
    ...data.lacks.map(note));
  const bar = element("div", { class: "bar", role: "group", "aria-label": "Schedulers that are shown" });
  names.forEach((name, index) => {
    const button = element("button", {
      "aria-pressed": "true", style: `--mark: ${mark(index)}`, title: "show or hide this scheduler", onclick: () => {
        if (chosen.hidden.has(index)) chosen.hidden.delete(index);
        else if (shown().length > 1) chosen.hidden.add(index);
        button.setAttribute("aria-pressed", String(!chosen.hidden.has(index)));
        redraw();
      },
    }, name);
    bar.append(button);
  });
  report.append(bar);
}

start([heading, results, occupancy, memory, migrations, latencies, counters, repeat]);
