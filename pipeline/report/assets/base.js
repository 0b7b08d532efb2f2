// Small helpers: elements, numbers as text, the colours of the theme. No state but the theme.

const DATA = JSON.parse(document.getElementById("data").textContent);
const LIVE = JSON.parse(document.getElementById("live").textContent);

// An element with attributes and children; text is set as text, never as markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function colour(index) {
  return css(`--s${index % 8}`);
}

// Three digits that count; a dash for what is missing.
function num(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10000 || size < 0.001) return value.toExponential(1).replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}

function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), pad = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)} min`;
}

function mean(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
}

// The mean over the last `width` values up to each place; gaps are left out.
function smooth(values, width) {
  if (width <= 1) return values;
  const result = new Array(values.length);
  let sum = 0, count = 0;
  for (let i = 0; i < values.length; i++) {
    if (values[i] !== null && values[i] !== undefined) { sum += values[i]; count++; }
    const old = i >= width ? values[i - width] : null;
    if (old !== null && old !== undefined) { sum -= old; count--; }
    result[i] = count ? sum / count : null;
  }
  return result;
}

function chip(text, kind) {
  return el("span", { class: `chip ${kind}` }, text);
}

function statusChip(status) {
  const kinds = { running: "good", finished: "soft", stopped: "warn" };
  return chip(status, kinds[status] || "soft");
}

function section(id, title, note, ...children) {
  return el("section", { id }, el("h2", {}, title, note ? el("small", {}, `  ${note}`) : null), ...children);
}

const themed = [];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const redraw of themed) redraw();
}
function themeButton() {
  const flip = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  return el("button", { onclick: flip, title: "dark or light", "aria-label": "dark or light", id: "theme" }, "◐");
}
document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";

// Asks the server that made this page; `body` makes it an action, which needs the page's token.
async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Watch-Token": LIVE.token },
    body: JSON.stringify(body),
  };
  const answer = await fetch(path, options);
  const text = await answer.text();
  let value;
  try { value = JSON.parse(text); } catch { value = { error: text.slice(0, 300) }; }
  if (!answer.ok) throw new Error(value.error || `the server answered ${answer.status}`);
  return value;
}
