// The live page of all runs: a list, curves of those that are chosen on top of each other, and a form to start one.

const COMPARED = [
  ["rollout/reward_mean", "Reward", "reward", 1], ["rollout/pass_rate", "Pass rate", "%", 100], ["step/seconds", "Time of a step", "s", 1],
  ["step/samples_per_s", "Completions", "samples/s", 1], ["rollout/completion_length", "Completion length", "tokens", 1], ["train/staleness_mean", "Staleness", "steps", 1],
];
// Columns of the list from this one on are left out on a small screen.
const WIDE_ONLY = 7;
const chosen = new Map();

function runRow(line, redraw) {
  const box = el("input", { type: "checkbox", "aria-label": `compare ${line.name}`, onchange: async () => {
    if (box.checked) chosen.set(line.name, await ask(`/api/runs/${encodeURIComponent(line.name)}/series`));
    else chosen.delete(line.name);
    redraw();
  } });
  box.checked = chosen.has(line.name);
  const link = el("a", { href: `/runs/${encodeURIComponent(line.name)}` }, line.name);
  if (line.error) return [null, link, statusChip(line.status), el("span", { class: "soft" }, line.error)];
  const after = line.after ? percent(line.after.mean) : "–";
  const by = line.difference ? ` (${line.difference.mean > 0 ? "+" : ""}${(100 * line.difference.mean).toFixed(1)})` : "";
  return [box, link, statusChip(line.status), `${line.step} of ${line.max_steps}`, num(line.reward), percent(line.pass_rate), after + by,
    el("span", { class: "soft" }, [line.model, line.dataset, line.mode].filter(Boolean).join(" · ")), el("span", { class: "soft" }, new Date(1000 * line.started_s).toLocaleString())];
}

// One chart with a line a run: steps of all are laid on one axis.
function comparison(name, title, unit, scale) {
  const place = el("div", { class: "plot" });
  const node = el("div", { class: "card chart" }, el("h3", {}, title), place);
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    plot = null;
    const runs = [...chosen].filter(([, columns]) => columns[name].length);
    node.hidden = runs.length === 0;
    place.replaceChildren();
    if (node.hidden) return;
    const tables = runs.map(([, columns]) => [view.axis === "time" ? columns.time_s : columns.step, smooth(columns[name], view.width).map((value) => (value === null ? null : value * scale))]);
    const options = runs.map(([run], index) => lineSeries(run, index, unit));
    plot = new uPlot(plotOptions(Math.max(240, place.clientWidth), unit, options), uPlot.join(tables), place);
  };
  return { node, draw };
}

// What the chosen runs were set to differently, the names of the runs themselves aside.
function differences() {
  const runs = [...chosen];
  if (runs.length < 2) return el("div");
  // A setting that is a mapping has a line for each of its keys: a run may have some that others lack.
  const names = [...new Set(runs.flatMap(([, { settings }]) => Object.keys(settings)))].filter((name) => name !== "output.name" && new Set(runs.map(([, { settings }]) => settings[name])).size > 1);
  const rows = names.map((name) => [el("span", { class: "mono" }, name), ...runs.map(([, { settings }]) => settings[name] ?? "–")]);
  return el("div", { class: "card" }, rows.length ? breakdownTable(rows, ["setting", ...runs.map(([run]) => run)]) : el("p", { class: "soft" }, "Their settings are the same."));
}

function startForm(tell) {
  const input = (name, label, placeholder) => el("label", {}, label, el("input", { name, placeholder, autocomplete: "off" }));
  const mode = el("select", { name: "mode" }, ["balanced", "conservative", "aggressive"].map((value) => el("option", { value }, value)));
  const lines = el("textarea", { name: "set", placeholder: "training.learning_rate=1e-5\none setting a line", spellcheck: "false" });
  const form = el("form", { class: "start card", id: "start", onsubmit: async (event) => {
    event.preventDefault();
    const wanted = Object.fromEntries(["model", "dataset", "max_steps", "run_name", "mode"].map((name) => [name, form.elements[name].value]));
    wanted.set = lines.value.split("\n");
    try { tell((await ask("/api/start", wanted)).message); } catch (error) { tell(error.message); }
  } }, input("model", "model", "smollm2-135m-instruct"), input("dataset", "tasks", "ladder"), input("max_steps", "steps", "as configured"), input("run_name", "name", "date and time"),
  el("label", {}, "mode", mode), el("label", {}, "other settings", lines), el("button", { type: "submit" }, "Start"));
  return form;
}

async function showRuns() {
  const message = el("p", { id: "message", class: "message", role: "status" });
  const body = el("tbody");
  const jobs = el("div", { id: "jobs" });
  const charts = COMPARED.map((spec) => comparison(...spec));
  const settings = el("div", { class: "scroll" });
  const hint = el("p", { class: "soft" }, "Tick runs to compare their curves.");
  const redraw = () => { hint.hidden = chosen.size > 0; for (const chart of charts) chart.draw(); settings.replaceChildren(differences()); };
  view.charts.push(...charts);
  document.getElementById("top").replaceChildren(el("h1", {}, "Runs"), el("span", { class: "soft mono" }, LIVE.root), el("span", { class: "tools" }, ...chartTools(), themeButton()));
  const headings = ["", "run", "", "steps", "reward", "pass rate", "held-out pass@1", "what", "begun"];
  document.getElementById("main").replaceChildren(message,
    el("section", { class: "card" }, el("div", { class: "scroll" }, el("table", { id: "runs" }, el("thead", {}, el("tr", {}, headings.map((text, place) => el("th", { class: place >= WIDE_ONLY ? "hide-small" : null }, text)))), body))),
    section("compare", "Compare", "", hint, el("div", { class: "charts" }, charts.map((chart) => chart.node)), settings),
    section("new", "Start a run", "with the defaults, but for what you change", startForm((text) => { message.textContent = text; message.scrollIntoView({ block: "center" }); }), jobs));
  const refresh = async () => {
    try {
      const [lines, started] = await Promise.all([ask("/api/runs"), ask("/api/jobs")]);
      body.replaceChildren(...lines.map((line) => el("tr", {}, runRow(line, redraw).map((cell, place) => el("td", { class: place >= WIDE_ONLY ? "hide-small" : null, colspan: line.error && place === 3 ? 6 : null }, cell)))));
      if (!lines.length) body.replaceChildren(el("tr", {}, el("td", { colspan: headings.length, class: "empty" }, "No run in this folder yet.")));
      const open = [...jobs.querySelectorAll("details")].map((node) => node.open);
      jobs.replaceChildren(...started.map((job, index) => el("details", { class: "card", open: open[index] ?? index === 0 },
        el("summary", {}, `${job.title} · process ${job.pid} · ${job.exit_status === null ? "running" : `ended with ${job.exit_status}`}`), el("pre", {}, job.tail || "(nothing printed yet)"))));
    } catch (error) { message.textContent = `no news: ${error.message}`; }
  };
  await refresh();
  redraw();
  document.body.dataset.ready = "yes";
  // One after the other: with many runs an answer takes longer than the pause.
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LIVE.poll_ms));
    await refresh();
  }
}
