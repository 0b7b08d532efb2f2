// Completions: a table to choose from, one in full, and the same task before and after.

function outcomeChip(sample) {
  const kind = sample.passed ? "good" : sample.outcome === "infra_error" ? "warn" : "bad";
  return chip(sample.outcome, kind);
}

function meter(value) {
  const wide = Math.max(0, Math.min(1, value || 0)) * 100;
  return el("span", { class: "meter", title: num(value) }, el("i", { style: `width:${wide}%` }));
}

function breakdownTable(rows, headings) {
  return el("table", {}, el("thead", {}, el("tr", {}, headings.map((text) => el("th", {}, text)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell))))));
}

// An answer that failed, with its verdict and the feedback that the next one had before it.
function earlierTurn(turn, index) {
  return el("div", { class: "turn" },
    el("p", { class: "message" }, `turn ${index + 1} `, chip(turn.outcome, "bad"), ` reward ${num(turn.reward)}`, turn.detail ? el("span", { class: "soft" }, ` · ${turn.detail}`) : null),
    el("pre", {}, turn.text), el("p", { class: "soft message" }, `feedback, ${turn.num_feedback_tokens} tokens`), el("pre", {}, turn.feedback));
}

// One completion with everything that explains its score.
function sampleDetail(sample, task) {
  const facts = [
    `draw ${sample.draw_id}, completion ${sample.place + 1}`, sample.step === null ? `draw ${sample.status}${sample.reason ? `: ${sample.reason}` : ""}` : `trained in step ${sample.step}`,
    sample.min_policy_version === sample.max_policy_version ? `written by version ${sample.min_policy_version}` : `written by versions ${sample.min_policy_version} to ${sample.max_policy_version}`,
    `${sample.num_tokens} tokens, ended by ${sample.finish_reason}`, sample.cached ? "verdict from the cache" : `scored in ${duration(sample.seconds)}`,
  ];
  const scores = Object.entries(sample.breakdown).map(([name, value]) => [name, num(value), meter(value)]);
  return el("div", { id: "detail", class: "card" },
    el("h3", { class: "mono" }, sample.task_id),
    sample.turns.map(earlierTurn),
    el("p", { class: "message" }, sample.turns.length ? `turn ${sample.turns.length + 1} ` : null, outcomeChip(sample), ` reward ${num(sample.reward)}`, sample.detail ? el("span", { class: "soft" }, ` · ${sample.detail}`) : null),
    el("pre", {}, sample.completion || "(empty, or no longer kept: output.text_steps)"),
    scores.length ? el("details", { open: true }, el("summary", {}, "why this score"), breakdownTable(scores, ["reward", "score", ""])) : null,
    task ? el("details", {}, el("summary", {}, `the task: level ${task.difficulty}, ${task.source || "no source named"}`), el("pre", {}, task.prompt), el("p", { class: "soft" }, "tests"), el("pre", {}, task.tests)) : null,
    el("p", { class: "soft" }, facts.join(" · ")));
}

class SampleBrowser {
  // `find` gives { samples, tasks } for a filter; in a file it looks through what the file holds.
  constructor(find, note) {
    this.find = find;
    this.offset = 0;
    this.task = el("input", { placeholder: "task id has …", "aria-label": "task", size: 14 });
    this.first = el("input", { type: "number", min: 1, placeholder: "from step", "aria-label": "from step" });
    this.last = el("input", { type: "number", min: 1, placeholder: "to step", "aria-label": "to step" });
    const outcomes = ["", "pass", "wrong", "exception", "timeout_cpu", "timeout_wall", "oom", "crash", "violation", "infra_error"];
    this.outcome = el("select", { "aria-label": "verdict" }, outcomes.map((name) => el("option", { value: name }, name || "any verdict")));
    this.draw = null;
    for (const input of [this.task, this.first, this.last, this.outcome]) input.addEventListener("input", () => { this.draw = null; this.offset = 0; this.later(); });
    this.body = el("tbody");
    this.count = el("span", { class: "soft" });
    this.detail = el("div", {});
    const page = (by) => () => { this.offset = Math.max(0, this.offset + by); this.load(); };
    this.older = el("button", { onclick: page(100) }, "older");
    this.newer = el("button", { onclick: page(-100) }, "newer");
    const table = el("table", { id: "samples-table" }, el("thead", {}, el("tr", {}, ["step", "task", "verdict", "reward", "tokens"].map((text) => el("th", {}, text)))), this.body);
    this.node = el("div", { class: "split" },
      el("div", { class: "card" }, el("div", { class: "bar" }, this.task, this.first, this.last, this.outcome, this.newer, this.older, this.count), note ? el("p", { class: "soft message" }, note) : null, el("div", { class: "scroll" }, table)),
      this.detail);
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), 150);
  }

  openDraw(draw) {
    this.draw = draw;
    this.offset = 0;
    this.detail.replaceChildren();
    this.load();
    document.getElementById("samples").scrollIntoView();
  }

  async load() {
    const asked = this.asked = (this.asked || 0) + 1;
    let found;
    try {
      found = await this.find({ task: this.task.value.trim(), first_step: this.first.value, last_step: this.last.value, outcome: this.outcome.value, draw_id: this.draw, offset: this.offset, limit: 100 });
    } catch (error) {
      this.count.textContent = error.message;
      return;
    }
    if (asked !== this.asked) return;
    const { samples, tasks } = found;
    this.newer.disabled = this.offset === 0;
    this.older.disabled = samples.length < 100;
    this.count.textContent = samples.length ? `${this.offset + 1} to ${this.offset + samples.length}${this.draw === null ? "" : ` of draw ${this.draw}`}` : "none";
    this.body.replaceChildren(...samples.map((sample) => {
      const row = el("tr", { class: "pick", tabindex: 0 }, el("td", {}, sample.step ?? el("span", { class: "soft", title: sample.reason || "" }, sample.status)), el("td", { class: "mono" }, sample.task_id), el("td", {}, outcomeChip(sample)),
        el("td", {}, meter(sample.reward), ` ${num(sample.reward)}`), el("td", {}, sample.num_tokens));
      const show = () => {
        for (const other of this.body.children) other.removeAttribute("aria-selected");
        row.setAttribute("aria-selected", "true");
        this.detail.replaceChildren(sampleDetail(sample, tasks[sample.task_id]));
      };
      row.addEventListener("click", () => { show(); if (innerWidth <= 760) this.detail.scrollIntoView({ block: "center" }); });
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") show(); });
      return row;
    }));
    if (samples.length && !this.detail.children.length) this.detail.replaceChildren(sampleDetail(samples[0], tasks[samples[0].task_id]));
  }
}

// The filter of the server (pipeline.report.samples), on what a file holds.
function findInFile(wanted) {
  const within = (value, low, high) => (low === "" || (value !== null && value >= Number(low))) && (high === "" || (value !== null && value <= Number(high)));
  const all = DATA.samples.filter((one) => one.task_id.toLowerCase().includes(wanted.task.toLowerCase()) && within(one.step, wanted.first_step, wanted.last_step) &&
    (wanted.outcome === "" || one.outcome === wanted.outcome) && (wanted.draw_id === null || one.draw_id === wanted.draw_id));
  all.sort((a, b) => b.draw_id - a.draw_id || a.place - b.place);
  return { samples: all.slice(wanted.offset, wanted.offset + wanted.limit), tasks: DATA.tasks };
}

function examplePair(pair, task, isOpen) {
  const side = (one) => el("div", {}, el("p", { class: "message" }, el("b", {}, one.label), " ", outcomeChip(one), ` reward ${num(one.reward)}`, one.detail ? el("span", { class: "soft" }, ` · ${one.detail}`) : null),
    el("p", { class: "soft message" }, `${one.num_passed} of ${one.rewards.length} passed; rewards ${one.rewards.map((value) => num(value, 2)).join(", ")}`));
  const names = [...new Set([...Object.keys(pair.before.breakdown), ...Object.keys(pair.after.breakdown)])];
  const rows = names.map((name) => {
    const [from, to] = [pair.before.breakdown[name], pair.after.breakdown[name]], by = (to ?? 0) - (from ?? 0);
    return [name, num(from), num(to), el("span", { class: by > 0 ? "good" : by < 0 ? "bad" : "soft" }, by === 0 ? "same" : `${by > 0 ? "+" : "−"}${num(Math.abs(by))}`)];
  });
  const lines = pair.diff.map(([mark, text]) => el("span", { class: mark === "+" ? "add" : mark === "-" ? "del" : "" }, `${mark} ${text}`));
  const kind = pair.change > 0 ? "good" : pair.change < 0 ? "bad" : "soft";
  return el("details", { class: "example card", open: isOpen },
    el("summary", {}, el("span", { class: "mono" }, pair.task_id), el("span", { class: "soft" }, ` ${pair.kind} · mean reward ${num(pair.before.mean, 2)} → ${num(pair.after.mean, 2)} `), el("b", { class: kind }, pair.change === 0 ? "same" : `${pair.change > 0 ? "+" : "−"}${num(Math.abs(pair.change), 2)}`)),
    el("div", { class: "two" }, side(pair.before), side(pair.after)),
    el("div", { class: "split" }, el("div", {}, breakdownTable(rows, ["reward", pair.before.label, pair.after.label, "change"]), task ? el("details", {}, el("summary", {}, "the task"), el("pre", {}, task.prompt)) : null), el("pre", { class: "diff" }, lines)));
}
