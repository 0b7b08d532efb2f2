// Who worked when: one row a span, stacked where several of a stage ran at once. uPlot gives axes and zoom.

const LANE_COLOURS = [0, 1, 5, 2, 3, 6, 7];
const LANE_HEIGHT = 12, STAGE_GAP = 10;

// A window is no narrower than this, whatever is asked for.
function atLeast([from, to]) {
  return [from, Math.max(to, from + 0.01)];
}

class Timeline {
  // `source` gives spans, waits and stages; `open` is told of the draw that was clicked.
  constructor(source, open) {
    this.source = source;
    this.open = open;
    this.plot = null;
    this.range = null; // what the reader has chosen; without it the window moves on with the run
    this.isWhole = false;
    this.place = el("div", { class: "plot" });
    this.shares = el("div", { class: "stageshares" });
    this.words = el("p", { class: "soft message", id: "stepwords" }, "Drag to zoom, double-click for all, scroll to move; hover for details, click a draw for its completions.");
    this.step = el("input", { type: "number", min: 1, "aria-label": "step", placeholder: "step", onchange: () => this.goTo(Number(this.step.value)) });
    const move = (by) => () => this.goTo((Number(this.step.value) || 0) + by);
    const tools = el("div", { class: "bar" },
      el("button", { onclick: move(-1), "aria-label": "step before" }, "◀"), this.step,
      el("button", { onclick: move(1), "aria-label": "next step" }, "▶"),
      el("button", { onclick: () => this.show(null) }, "all"),
      el("button", { onclick: () => this.zoom(0.5) }, "zoom in"), el("button", { onclick: () => this.zoom(2) }, "zoom out"));
    this.card = el("div", { class: "card" }, tools, this.words, this.place, this.shares);
    this.empty = el("p", { class: "card empty" }, LIVE ? "Nothing yet." : "This run kept no timeline (output.timeline_steps).");
    this.node = el("div", {}, this.card, this.empty);
    this.tip = document.getElementById("tip") || document.body.appendChild(el("div", { id: "tip", hidden: true }));
    themed.push(() => this.draw());
  }

  // Gives each span a lane: the lowest of its stage that is free when it begins.
  layOut() {
    const { spans, stages } = this.source();
    const rows = stages.map(() => []);
    for (const span of spans) rows[span[0]].push(span);
    this.boxes = [];
    this.bands = [];
    let top = 0;
    rows.forEach((own, stage) => {
      if (!own.length) return;
      own.sort((a, b) => a[2] - b[2]);
      const ends = [];
      for (const span of own) {
        let lane = ends.findIndex((end) => end <= span[2] + 1e-9);
        if (lane < 0) lane = ends.length;
        ends[lane] = span[3];
        this.boxes.push({ span, stage, y: top + lane * LANE_HEIGHT });
      }
      const height = ends.length * LANE_HEIGHT;
      this.bands.push({ stage, name: stages[stage], y: top, height });
      top += height + STAGE_GAP;
    });
    this.height = top;
    const starts = spans.map((span) => span[2]), ends = spans.map((span) => span[3]);
    this.all = spans.length ? [starts.reduce((a, b) => Math.min(a, b)), ends.reduce((a, b) => Math.max(a, b))] : [0, 1];
  }

  draw() {
    const { spans, busy, stages } = this.source();
    this.card.hidden = !spans.length;
    this.empty.hidden = spans.length > 0;
    if (!spans.length) return;
    this.layOut();
    if (this.plot) this.plot.destroy();
    const [from, to] = this.window = atLeast(this.range || (this.isWhole ? this.all : this.first()));
    const width = Math.max(240, this.place.clientWidth);
    const narrow = width < 600;
    this.plot = new uPlot({
      width, height: Math.min(620, this.height + 54), padding: [4, 8, 0, 0], legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: true }, points: { show: false }, y: false },
      scales: { x: { time: false, min: from, max: to, range: (_, min, max) => atLeast([min, max]) }, y: { dir: -1, range: [0, this.height] } },
      axes: [
        { ...axisOptions("time since start (min:s)", 20), values: (_, ticks) => ticks.map((tick) => this.tick(tick)) },
        { ...axisOptions(null, narrow ? 74 : 104), labelSize: 0, grid: { show: false }, splits: () => this.bands.map(({ y, height }) => y + height / 2), values: () => this.bands.map(({ name }) => (narrow ? name.split(" ").pop().slice(0, 10) : name)) },
      ],
      series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
      hooks: { drawAxes: [(plot) => this.paint(plot)], setCursor: [(plot) => this.hover(plot)], setScale: [(plot, key) => this.scaled(plot, key)] },
    }, [[this.all[0], this.all[1]], [0, 0]], this.place);
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", "timeline of the stages");
    const over = this.plot.over;
    over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    over.addEventListener("click", () => { if (this.hot && this.hot.span[5] !== null) this.open(this.hot.span[5]); });
    over.addEventListener("dblclick", () => setTimeout(() => this.show(null)));
    this.shares.replaceChildren(...Object.entries(busy).map(([stage, [seconds, part]]) => {
      const mark = el("i", { style: `background:${colour(LANE_COLOURS[stages.indexOf(stage)])}` });
      return el("span", {}, mark, `${stage} `, el("b", {}, percent(part, 0)), el("span", { class: "soft" }, ` of the time, ${duration(seconds)}`));
    }));
  }

  // A window that was not set here was drawn by the reader, and stays; others move on with the run.
  scaled(plot, key) {
    const { min, max } = plot.scales.x;
    if (key === "x" && plot === this.plot && (min !== this.window[0] || max !== this.window[1])) this.range = this.window = [min, max];
  }

  // Of a long run the last steps; a short one as a whole.
  first() {
    const { waits } = this.source();
    if (waits.length <= 12) return this.all;
    return [waits[waits.length - 8][1], this.all[1]];
  }

  tick(seconds) {
    const span = this.plot ? this.plot.scales.x.max - this.plot.scales.x.min : 100;
    return span < 12 ? `${clock(Math.floor(seconds))}.${String(Math.floor((seconds % 1) * 100)).padStart(2, "0")}` : clock(seconds);
  }

  paint(plot) {
    const context = plot.ctx, { left, top, width, height } = plot.bbox, ratio = devicePixelRatio;
    const [min, max] = [plot.scales.x.min, plot.scales.x.max];
    const x = (value) => left + ((value - min) / (max - min)) * width;
    const y = (value) => top + (value / this.height) * height;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.font = `${10 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    this.marks(plot, x, top, height, ratio);
    for (const { span, stage, y: place } of this.boxes) {
      if (span[3] < min || span[2] > max) continue;
      const from = x(span[2]), wide = Math.max(1, x(span[3]) - from - ratio * 0.5);
      const high = y(place + LANE_HEIGHT) - y(place);
      context.globalAlpha = stage === 2 ? 0.45 : 0.9;
      context.fillStyle = colour(LANE_COLOURS[stage]);
      context.fillRect(from, y(place), wide, Math.max(1, high - ratio));
    }
    context.restore();
  }

  // A thin line where each step's weights changed, with its number where there is room.
  marks(plot, x, top, height, ratio) {
    const context = plot.ctx, { waits } = this.source();
    const room = waits.filter((row) => row[2] >= plot.scales.x.min && row[2] <= plot.scales.x.max).length;
    if (room > 150) return;
    context.fillStyle = css("--grid");
    for (const row of waits) context.fillRect(x(row[2]), top, ratio, height);
  }

  hover(plot) {
    const { left, top } = plot.cursor;
    this.hot = null;
    if (left >= 0 && top >= 0) {
      const time = plot.posToVal(left, "x"), place = (top / plot.over.clientHeight) * this.height;
      const slack = (3 / plot.over.clientWidth) * (plot.scales.x.max - plot.scales.x.min);
      const near = this.boxes.filter(({ span, y }) => place >= y && place < y + LANE_HEIGHT && time >= span[2] - slack && time <= span[3] + slack);
      this.hot = near[0] || null;
    }
    this.tip.hidden = !this.hot;
    if (!this.hot) return;
    const { stages } = this.source(), [stage, name, from, to, step, draw, tokens] = this.hot.span;
    const facts = [`${clock(from)} to ${clock(to)}`, `step ${step} was next to be closed`];
    if (draw !== null) facts.push(`draw ${draw}`);
    if (tokens) facts.push(`${num(tokens, 6)} tokens, ${num(tokens / Math.max(1e-6, to - from))} tokens/s`);
    this.tip.replaceChildren(el("b", {}, `${stages[stage]}: ${name}`), el("div", {}, duration(to - from)), ...facts.map((text) => el("div", { class: "soft" }, text)));
    const box = plot.over.getBoundingClientRect();
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(4, Math.min(innerWidth - wide - 8, box.left + left + 14))}px`;
    this.tip.style.top = `${Math.min(innerHeight - this.tip.offsetHeight - 8, box.top + top + 16)}px`;
  }

  wheel(event) {
    event.preventDefault();
    const [min, max] = this.window, by = ((event.deltaY || event.deltaX) / 600) * (max - min);
    this.show([min + by, max + by]);
  }

  zoom(factor) {
    const [min, max] = this.window, middle = (min + max) / 2, half = ((max - min) / 2) * factor;
    this.show([middle - half, middle + half]);
  }

  show(range) {
    this.range = range;
    this.isWhole = !range;
    const [min, max] = this.window = atLeast(range || this.all);
    this.plot.setScale("x", { min, max });
  }

  // To one step, and in words who waited for whom.
  goTo(step) {
    const { waits } = this.source(), row = waits.find((one) => one[0] === step);
    if (!row) return;
    this.step.value = step;
    const [, from, to, trained, generation, rewards, nothing, other] = row, total = to - from;
    const part = (seconds) => `${duration(seconds)} (${percent(seconds / total, 0)})`;
    this.words.textContent = `Step ${step} took ${duration(total)}: the trainer worked ${part(trained)}, waited ${part(generation)} for generation, ` +
      `${part(rewards)} for rewards alone, ${part(nothing)} while neither was at work, and ${part(other)} went to weights and accounts.`;
    this.show([from - 0.04 * total, to + 0.04 * total]);
  }
}
