// The curves: what is drawn, from which metrics, with which unit. uPlot draws.

const view = { axis: "step", width: 1, charts: [] };

const PART = "reward_part/", LEVEL = "level_pass_rate/";
const share = { unit: "%", scale: 100 };
const line = (name, label) => ({ name, label });

const LEARNING = [
  { title: "Reward", unit: "reward", lines: [line("rollout/reward_mean", "mean")], band: "rollout/reward_std" },
  { title: "Pass rate", ...share, lines: [line("rollout/pass_rate", "training"), line("eval/pass_at_1", "held-out pass@1")] },
  { title: "Score by reward", note: "mean, before weights", unit: "score", family: PART },
  { title: "Pass rate by level", ...share, family: LEVEL },
  { title: "Curriculum", note: "scored groups since the start", unit: "groups", family: "curriculum/visited_" },
  { title: "Replaced groups", note: "without signal", unit: "groups", lines: [line("rollout/gated_groups", "all"), line("rollout/gated_solved_groups", "solved by all")] },
  { title: "Completion length", unit: "tokens", lines: [line("rollout/completion_length", "mean")] },
  { title: "What went wrong", ...share, lines: [line("rollout/truncated_share", "cut off"), line("rollout/syntax_failure_share", "no syntax"), line("rollout/zero_signal_share", "groups without signal"), line("rollout/infra_error_share", "not scored")] },
];
const POLICY = [
  { title: "Staleness", note: "age of a sample's oldest token", unit: "steps", lines: [line("train/staleness_mean", "mean"), line("train/staleness_max", "max"), line("train/token_staleness_mean", "by token")] },
  { title: "Importance ratio", note: "trained to behaviour policy", unit: "ratio", log: true, lines: [line("train/ratio_p01", "p1"), line("train/ratio_p50", "median"), line("train/ratio_p99", "p99"), line("train/ratio_max", "max")] },
  { title: "Clipped and capped tokens", ...share, lines: [line("train/clipped_share", "clipped"), line("train/capped_share", "weight capped")] },
  { title: "Loss", unit: "loss", lines: [line("train/loss", "loss")] },
  { title: "Gradient norm", unit: "norm", lines: [line("train/grad_norm", "before clipping")] },
  { title: "Entropy", unit: "nats", lines: [line("train/entropy", "per token")] },
  { title: "KL", unit: "nats", lines: [line("train/kl", "to behaviour"), line("train/mismatch_kl", "engine mismatch"), line("train/reference_kl", "to reference")] },
  { title: "Learning rate", unit: "rate", lines: [line("train/learning_rate", "rate")] },
];
const SPEED = [
  { title: "Where a step's time went", note: "the trainer's view", unit: "s", waits: true },
  { title: "Throughput", unit: "tokens/s", lines: [line("generation/tokens_per_s", "generation"), line("train/tokens_per_s", "training")] },
  { title: "Completions", unit: "samples/s", lines: [line("step/samples_per_s", "trained")] },
  { title: "Reward cache", ...share, lines: [line("rewards/cache_hit_rate", "found or shared")] },
  { title: "Cost of a score", unit: "ms", scale: 1000, lines: [line("rewards/seconds_mean", "mean")] },
  { title: "New weights", unit: "s", lines: [line("weights/update_s", "until loaded"), line("weights/pause_s", "engine paused")] },
  { title: "Packing", ...share, lines: [line("train/pack_ratio", "rows filled"), line("train/padding_share", "padding"), line("train/skipped_share", "samples skipped")] },
  { title: "Trainer's GPU memory", note: "most held in a step", unit: "GB", lines: [line("train/gpu_memory_gb", "reserved")] },
  { title: "Model FLOPs utilisation", note: "of the GPU's bf16 peak", ...share, lines: [line("train/mfu", "MFU")] },
  { title: "Engine asleep", note: "its memory is the trainer's", unit: "s", lines: [line("generation/asleep_s", "asleep"), line("generation/sleep_wake_s", "to sleep and wake")] },
  { title: "Speculation", ...share, lines: [line("generation/draft_acceptance", "drafts kept")] },
];
const WAITS = ["training", "waits: generation", "waits: rewards", "waits: neither", "other"];

// The lines of a chart that the run has values for.
function linesOf(spec, series) {
  if (spec.family) {
    return Object.keys(series).filter((name) => name.startsWith(spec.family)).sort()
      .map((name) => line(name, name.slice(spec.family.length).replace("_", " ")));
  }
  const has = (name) => (series[name] || []).some((value) => value !== null);
  return (spec.lines || []).filter(({ name }) => has(name));
}

function axisOptions(label, size) {
  return {
    label, labelSize: 14, labelGap: 0, labelFont: "11px system-ui, sans-serif", font: "11px system-ui, sans-serif", size,
    stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false }, gap: 4,
  };
}

// Distances of ticks on the horizontal axis: there is no half step.
const WHOLE = [1, 2, 5].flatMap((digit) => [...Array(7).keys()].map((zeros) => digit * 10 ** zeros)).sort((a, b) => a - b);

function plotOptions(width, unit, seriesOptions, more = {}) {
  const time = view.axis === "time";
  return {
    width, height: 190, padding: [8, 24, 0, 0], cursor: { sync: { key: "runs" }, points: { size: 5 }, drag: { x: true, y: false } },
    legend: { live: true, markers: { width: 0, fill: (plot, index) => (index ? plot.series[index].stroke(plot, index) : "transparent") } },
    scales: { x: { time: false }, y: more.log ? { distr: 3 } : more.fromZero ? { range: (_, min, max) => [0, max * 1.05 || 1] } : {} },
    axes: [
      { ...axisOptions(time ? "time since start (min:s)" : "step", 20), incrs: WHOLE, values: (_, ticks) => ticks.map((tick) => (time ? clock(tick) : Math.round(tick).toLocaleString("en"))) },
      { ...axisOptions(unit, 44), values: (_, ticks) => ticks.map((tick) => (tick === null ? null : num(tick))) },
    ],
    series: [{ label: time ? "time" : "step", value: (_, value) => (value === null ? "–" : time ? clock(value) : String(value)) }, ...seriesOptions],
    bands: more.bands,
    // Where nothing is pointed at, the legend shows the last values.
    hooks: { ready: [showLast], setCursor: [(plot) => { if (plot.cursor.left < 0) showLast(plot); }] },
  };
}

function showLast(plot) {
  plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

function clock(seconds) {
  const whole = Math.round(seconds), pad = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}

function known(values) {
  return values.reduce((count, value) => count + (value !== null && value !== undefined), 0);
}

function lineSeries(label, index, unit, faint = false) {
  return {
    label, stroke: () => (faint ? colour(index) + "40" : colour(index)), width: faint ? 1 : 1.6, spanGaps: true,
    points: { show: (plot, place) => !faint && known(plot.data[place]) < 40, size: 5, fill: () => colour(index) },
    value: (_, value) => (value === null || value === undefined ? "–" : `${num(value)}${unit === "%" ? " %" : ""}`),
  };
}

// Columns and series of a chart of metrics.
function metricPlot(spec, series, width) {
  const lines = linesOf(spec, series), scale = spec.scale || 1;
  const xs = view.axis === "time" ? series.time_s : series.step;
  const columns = [xs], options = [];
  const scaled = (name) => (scale === 1 ? series[name] : series[name].map((value) => (value === null ? null : value * scale)));
  const raws = lines.map(({ name }) => (spec.log ? series[name].map((value) => (value > 0 ? value : null)) : scaled(name)));
  // Behind a mean over many steps: what was measured, faintly.
  if (view.width > 1 && !spec.band) {
    raws.forEach((raw, index) => { columns.push(raw); options.push({ ...lineSeries("", index, spec.unit, true), class: "band" }); });
  }
  let bands;
  lines.forEach(({ label }, index) => {
    columns.push(smooth(raws[index], view.width));
    options.push(lineSeries(label, index, spec.unit));
  });
  if (spec.band && series[spec.band]) {
    const middle = columns[1];
    const spread = smooth(series[spec.band], view.width);
    for (const sign of [1, -1]) {
      columns.push(middle.map((value, i) => (value === null || spread[i] === null ? null : value + sign * spread[i])));
      options.push({ label: sign > 0 ? "+ std" : "− std", class: "band", stroke: "transparent", points: { show: false } });
    }
    bands = [{ series: [columns.length - 2, columns.length - 1], fill: () => colour(0) + "22" }];
  }
  return { columns, options: plotOptions(width, spec.unit, options, { log: spec.log, bands }) };
}

// Columns and series of the stacked seconds of each step.
function waitsPlot(spec, waits, width) {
  const ordered = [...waits].sort((a, b) => a[0] - b[0]);
  const columns = [ordered.map((row) => (view.axis === "time" ? row[2] : row[0]))];
  const options = [], parts = [3, 4, 5, 6, 7];
  const tops = parts.map((_, part) => ordered.map((row) => parts.slice(0, part + 1).reduce((sum, place) => sum + row[place], 0)));
  for (let part = parts.length - 1; part >= 0; part--) {
    columns.push(tops[part]);
    options.push({
      label: WAITS[part], stroke: () => colour(STACK[part]), fill: () => colour(STACK[part]), width: 0.5, points: { show: false },
      paths: uPlot.paths.stepped({ align: -1 }),
      value: (_, value, __, index) => (index === null || index === undefined ? "–" : duration(ordered[index][parts[part]])),
    });
  }
  return { columns, options: plotOptions(width, spec.unit, options, { fromZero: true }) };
}
const STACK = [2, 0, 1, 6, 3];

class Chart {
  constructor(spec, source) {
    this.spec = spec;
    this.source = source;
    this.plot = null;
    this.place = el("div", { class: "plot" });
    const note = spec.note ? el("small", {}, `  ${spec.note}`) : null;
    this.node = el("div", { class: "card chart" }, el("h3", {}, spec.title, note), this.place);
  }

  isEmpty() {
    const { series, waits } = this.source();
    return this.spec.waits ? waits.length === 0 : linesOf(this.spec, series).length === 0;
  }

  draw() {
    const { series, waits } = this.source();
    this.node.hidden = this.isEmpty();
    if (this.node.hidden) return;
    const width = Math.max(240, this.place.clientWidth || this.node.clientWidth - 18);
    const made = this.spec.waits ? waitsPlot(this.spec, waits, width) : metricPlot(this.spec, series, width);
    if (this.plot) this.plot.destroy();
    this.plot = new uPlot(made.options, made.columns, this.place);
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", `${this.spec.title}, ${this.spec.unit}`);
  }
}

function chartSection(id, title, note, specs, source) {
  const charts = specs.map((spec) => new Chart(spec, source));
  view.charts.push(...charts);
  return section(id, title, note, el("div", { class: "charts" }, charts.map((chart) => chart.node)));
}

function drawCharts() {
  for (const chart of view.charts) chart.draw();
}

// Axis and smoothing, for all charts at once.
function chartTools() {
  const axis = el("select", { "aria-label": "horizontal axis", onchange: () => { view.axis = axis.value; drawCharts(); } },
    el("option", { value: "step" }, "by step"), el("option", { value: "time" }, "by time"));
  const width = el("select", { "aria-label": "smoothing", onchange: () => { view.width = Number(width.value); drawCharts(); } },
    [[1, "as measured"], [5, "mean of 5"], [20, "mean of 20"], [100, "mean of 100"]].map(([value, text]) => el("option", { value, selected: value === view.width }, text)));
  return [axis, width];
}

let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === lastWidth) return;
  lastWidth = innerWidth;
  clearTimeout(drawCharts.timer);
  drawCharts.timer = setTimeout(() => { for (const redraw of themed) redraw(); }, 150);
});
themed.push(drawCharts);
