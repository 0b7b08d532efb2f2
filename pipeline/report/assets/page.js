// Puts a run's page together, from the data in it; a live one asks its server for what came since.

let run = DATA;

function source() {
  return { series: run.series, waits: run.waits, spans: run.spans, stages: run.stages, busy: run.busy };
}

function tile(label, value, note) {
  return el("div", { class: "card tile" }, el("div", { class: "label" }, label), el("div", { class: "value" }, value), el("div", { class: "note" }, note || " "));
}

function lastMean(name, width = 5) {
  return mean((run.series[name] || []).slice(-width));
}

// Of rates: a step that took no time of the stage has no say.
function lastRate(name, secondsOf, width = 5) {
  const rates = (run.series[name] || []).slice(-width), seconds = (run.series[secondsOf] || []).slice(-width);
  const busy = seconds.map((value, index) => (rates[index] === null ? 0 : value || 0)), total = busy.reduce((sum, value) => sum + value, 0);
  return total ? busy.reduce((sum, value, index) => sum + value * rates[index], 0) / total : lastMean(name, width);
}

function lastMax(name, width = 5) {
  const values = (run.series[name] || []).slice(-width).filter((value) => value !== null);
  return values.length ? Math.max(...values) : null;
}

function firstMean(name, width = 5) {
  return mean((run.series[name] || []).slice(0, width));
}

function interval({ mean: middle, low, high }, sign = "") {
  return [`${sign && middle > 0 ? sign : ""}${percent(middle)}`, `95 % interval ${(100 * low).toFixed(1)} to ${percent(high)}`];
}

function tiles() {
  const { series, state, evaluation } = run, steps = series.step.length;
  const width = Math.max(1, Math.min(5, Math.floor(steps / 2)));
  const change = (name, show) => (steps > 1 ? `first ${width} steps ${show(firstMean(name, width))}` : "");
  // Not by the clock: a run that was stopped and resumed later took no step meanwhile.
  const seconds = (series["step/seconds"] || []).reduce((sum, value) => sum + (value || 0), 0);
  const list = [
    tile("reward", num(lastMean("rollout/reward_mean", width)), change("rollout/reward_mean", num)),
    tile("pass rate", percent(lastMean("rollout/pass_rate", width)), change("rollout/pass_rate", percent)),
  ];
  if (evaluation.difference) list.push(tile("held-out pass@1, change", ...interval(evaluation.difference, "+")));
  const after = evaluation.after || evaluation.before;
  if (after) list.push(tile(`held-out pass@1 ${evaluation.after ? "after" : "before"}`, ...interval(after.pass_at_1)));
  list.push(
    tile("steps", `${state.step} of ${state.max_steps}`, seconds ? `in ${duration(seconds)}` : ""),
    tile("step", duration(lastMean("step/seconds", width)), `${num(lastRate("step/samples_per_s", "step/seconds", width))} samples/s`),
    tile("generation", `${num(lastRate("generation/tokens_per_s", "generation/seconds", width))}`, "tokens/s while busy"),
    tile("training", `${num(lastRate("train/tokens_per_s", "train/seconds", width))}`, "tokens/s while busy"),
    tile("staleness", num(lastMean("train/staleness_mean", width)), `steps; oldest ${num(lastMax("train/staleness_max", width))}`),
    tile("cache", percent(lastMean("rewards/cache_hit_rate", width), 0), "of verdicts found or shared"));
  return list;
}

function tableOf(headings, rows) {
  return el("div", { class: "scroll" }, el("table", { class: headings.length === 2 ? "values" : null }, el("thead", {}, el("tr", {}, headings.map((text) => el("th", {}, text)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));
}

function settingsCard() {
  const only = el("input", { type: "checkbox" });
  const place = el("div");
  const fill = () => place.replaceChildren(tableOf(["setting", "value"], run.settings.filter(([, , changed]) => changed || !only.checked)
    .map(([name, value, changed]) => [el("span", { class: "mono" }, name), changed ? el("b", {}, value) : value])));
  only.addEventListener("change", fill);
  fill();
  return el("div", { class: "card" }, el("div", { class: "bar" }, el("label", {}, only, "only those that differ from the default")), place);
}

function machineCard() {
  const rows = [...Object.entries(run.hardware), ...(run.isolation_level ? [["sandbox level", run.isolation_level]] : []),
    ...(run.commit ? [["commit", run.commit]] : []), ...Object.entries(run.versions), ...Object.entries(run.seconds).map(([name, value]) => [`seconds: ${name.replaceAll("_", " ")}`, duration(value)])];
  return el("div", { class: "card" }, rows.length ? tableOf(["", ""], rows.map(([name, value]) => [el("span", { class: "soft" }, name), String(value ?? "")])) : el("p", { class: "empty" }, "This run noted nothing of its machine."));
}

function eventsCard() {
  return el("div", { class: "card" }, run.events.length ? tableOf(["time", "event", ""], [...run.events].reverse().map(([time, kind, text]) => [clock(time), kind, text])) : el("p", { class: "empty" }, "Nothing happened that was worth noting."));
}

function examplesPart() {
  if (!run.examples.length) return el("p", { class: "card empty" }, "No task has been asked twice yet: there is no before and after to show.");
  return el("div", {}, run.examples.map((pair, index) => examplePair(pair, pair.kind === "training" ? run.tasks[pair.task_id] : null, index === 0)));
}

function header() {
  const links = [["learning", "Learning"], ["policy", "Policy"], ["speed", "Speed"], ["timeline", "Timeline"], ["examples", "Before/after"], ["samples", "Samples"], ["settings", "Settings"]];
  const back = LIVE ? el("a", { href: "/" }, "runs") : null;
  document.getElementById("top").replaceChildren(el("h1", {}, run.name), el("span", { id: "status" }, statusChip(run.state.status)),
    el("nav", {}, back, links.map(([id, text]) => el("a", { href: `#${id}` }, text))),
    el("span", { class: "tools" }, ...(LIVE ? actionButtons() : []), ...chartTools(), themeButton()));
}

function actionButtons() {
  const act = (what) => async () => {
    const place = document.getElementById("message");
    try {
      place.textContent = (await ask(`/api/runs/${encodeURIComponent(LIVE.run)}/${what}`, {})).message;
    } catch (error) { place.textContent = error.message; }
  };
  return [el("button", { id: "stop", class: "danger", onclick: act("stop") }, "Stop"), el("button", { id: "resume", onclick: act("resume") }, "Resume")];
}

function showState() {
  document.getElementById("status").replaceChildren(statusChip(run.state.status));
  document.getElementById("tiles").replaceChildren(...tiles());
  document.getElementById("eventlist").replaceChildren(eventsCard());
  if (!LIVE) return;
  document.getElementById("stop").hidden = run.state.status !== "running";
  document.getElementById("resume").hidden = run.state.status !== "stopped";
}

// Adds what a live run did since: columns grow, new columns begin with gaps.
function takeIn(news) {
  const { series } = run, before = series.step.length, added = news.series.step.length;
  for (const name of new Set([...Object.keys(series), ...Object.keys(news.series)])) {
    series[name] = [...(series[name] || new Array(before).fill(null)), ...(news.series[name] || new Array(added).fill(null))];
  }
  run.spans.push(...news.spans);
  // As many as a page that is opened now has (reader.py): more make it slow.
  run.spans.splice(0, run.spans.length - 40000);
  const again = new Set(news.waits.map((row) => row[0]));
  run.waits = [...run.waits.filter((row) => !again.has(row[0])), ...news.waits];
  Object.assign(run, { state: news.state, events: news.events, last_span: news.last_span });
  if (news.spans.length) run.busy = news.busy;
  return added + news.spans.length > 0;
}

async function follow(timeline) {
  const place = document.getElementById("message");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, LIVE.poll_ms));
    const last = run.series.step.length ? run.series.step[run.series.step.length - 1] : 0;
    let news;
    try {
      news = await ask(`/api/runs/${encodeURIComponent(LIVE.run)}/news?after_step=${last}&after_span=${run.last_span}`);
      if (place.dataset.lost) { place.textContent = ""; delete place.dataset.lost; }
    } catch (error) {
      place.textContent = `no news: ${error.message}`;
      place.dataset.lost = "yes";
      continue;
    }
    // It went back, was measured or ended: what is drawn is no longer the run, or not all of it.
    if (String(news.edition) !== String(run.edition)) { location.reload(); return; }
    const grown = takeIn(news);
    showState();
    if (grown) { drawCharts(); timeline.draw(); }
  }
}

function showRun() {
  const steps = run.series.step.length;
  view.width = steps > 3000 ? 100 : steps > 300 ? 20 : 1;
  document.title = `${run.name} · code-grpo`;
  header();
  const find = LIVE ? (wanted) => ask(`/api/runs/${encodeURIComponent(LIVE.run)}/samples?${new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== null && value !== ""))}`) : async (wanted) => findInFile(wanted);
  const browser = new SampleBrowser(find, LIVE ? null : "A choice of whole groups, spread over the run; train_accelerated --watch shows all of them.");
  const timeline = new Timeline(source, (draw) => browser.openDraw(draw));
  document.getElementById("main").replaceChildren(
    el("p", { id: "message", class: "message", role: "status" }),
    el("section", { id: "tiles", class: "tiles" }),
    chartSection("learning", "Learning", "what the step's completions scored", LEARNING, source),
    chartSection("policy", "Policy", "how far it moved, how old its samples were", POLICY, source),
    chartSection("speed", "Speed", "where the seconds went", SPEED, source),
    section("timeline", "Timeline", "who worked, and who waited for whom", timeline.node),
    section("examples", "Before and after", "the same task, the completion with the median reward of each group", examplesPart()),
    section("samples", "Samples", "", browser.node),
    el("div", { class: "two", id: "settings" }, section("values", "Settings", "", settingsCard()),
      el("div", {}, section("machine", "Machine", "", machineCard()), section("events", "Events", "", el("div", { id: "eventlist" })))));
  showState();
  drawCharts();
  timeline.draw();
  browser.load();
  document.body.dataset.ready = "yes";
  if (LIVE) follow(timeline);
}

if (document.body.dataset.kind === "run") showRun();
else showRuns();
