"use strict";

// Uses a report as a reader does, and writes its findings into the page for browser.rs. It is inserted before the
// report's own script, so that it sees all errors.
(() => {
  const errors = [];
  addEventListener("error", (event) => errors.push(event.message));
  addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
  addEventListener("securitypolicyviolation", (event) =>
    errors.push(`${event.violatedDirective}: ${event.blockedURI}`));
  for (const kind of ["error", "warn"]) console[kind] = (...words) => errors.push(words.map(String).join(" "));

  /** The elements that Plotly draws for each kind of trace. */
  const INK = ".hm image, .points path, .js-line, .bars path, .fills path";
  const charts = () => [...document.querySelectorAll(".chart")].filter((chart) => chart.offsetParent !== null);
  const drawn = (chart) => [...chart.querySelectorAll(INK)].some((ink) => ink.getBoundingClientRect().width > 0);
  const heatMaps = () => charts().filter((chart) => chart.closest("#occupancy"));
  const controls = () => [...document.querySelectorAll("#occupancy select")];

  function choose(select, value) {
    select.value = value;
    select.dispatchEvent(new Event("change"));
  }

  /** A click with the mouse in the middle of the first row of a heat map. */
  function clickFirstRow(chart) {
    const target = chart.querySelector(".nsewdrag");
    const { left, top, width } = target.getBoundingClientRect();
    const at = {
      bubbles: true, cancelable: true, view: window, button: 0, buttons: 1,
      clientX: left + width / 2, clientY: top + 4,
    };
    for (const kind of ["mousemove", "mousedown", "mouseup"]) {
      (kind === "mousemove" ? target : document.elementFromPoint(at.clientX, at.clientY) ?? target)
        .dispatchEvent(new MouseEvent(kind, at));
    }
  }

  const look = {
    charts: () => charts().map((chart) => [chart.closest("section").id, drawn(chart)]),
    sections: () => [...document.querySelectorAll("section")].map((section) => section.id),
    /** Number of the second scheduler's charts: before a click on its name, after it, and after another one. */
    toggled() {
      const button = document.querySelectorAll(".bar button")[1];
      if (!button) return null;
      const count = () => charts().filter((chart) => chart.parentElement.dataset.scheduler === "1").length;
      const seen = [count()];
      for (let click = 0; click < 2; click += 1) {
        button.click();
        seen.push(count());
      }
      return seen;
    },
    /** The groups of tasks that can be chosen, and the sum of the first map's cells for each. */
    tasks() {
      if (heatMaps().length === 0) return null;
      const sums = {};
      for (const { value, text } of controls()[1].options) {
        choose(controls()[1], value);
        sums[text] = heatMaps()[0].data[0].z.flat().reduce((total, cell) => total + cell, 0);
      }
      choose(controls()[1], "-1");
      return sums;
    },
    /** Labels of the rows before a click on the first row, after it, and after a click on the new first row. */
    clicked() {
      if (heatMaps().length === 0) return null;
      const labels = () => heatMaps()[0].layout.yaxis.ticktext;
      const seen = [labels()];
      for (let click = 0; click < 2; click += 1) {
        const chart = heatMaps()[0];
        chart.scrollIntoView({ block: "center" });
        clickFirstRow(chart);
        seen.push(labels());
      }
      return seen;
    },
    /** The scenario that is chosen after a click on the first row of the map of scenarios, and after another one. */
    scenarios() {
      const control = document.querySelector("select[data-of=scenario]");
      if (!control) return null;
      const seen = [control.value];
      for (let click = 0; click < 2; click += 1) {
        const chart = charts().find((other) => other.closest("#scenarios"));
        chart.scrollIntoView({ block: "center" });
        clickFirstRow(chart);
        seen.push(control.value);
      }
      return seen;
    },
    /** Time from the page's first byte until everything was drawn, in ms. */
    drawn_ms: () => Math.round(performance.getEntriesByName("drawn")[0].startTime),
    wide: () => document.documentElement.scrollWidth > innerWidth,
    markup: () => document.querySelectorAll("#report b, #report img, #report script").length,
    errors: () => errors,
  };

  function report() {
    if (document.documentElement.dataset.state !== "drawn") return;
    watcher.disconnect();
    performance.mark("drawn");
    const found = {};
    for (const [name, ask] of Object.entries(look)) {
      try {
        found[name] = ask();
      } catch (error) {
        errors.push(`${name}: ${error}`);
      }
    }
    const place = document.createElement("pre");
    place.id = "found";
    place.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
    document.head.append(place);
  }
  const watcher = new MutationObserver(report);
  watcher.observe(document.documentElement, { attributes: true });
})();
