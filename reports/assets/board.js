// The first page: sort, filter, and the answer to "which system under this latency?".
"use strict";

const form = document.querySelector("form.filters");
const groups = [...document.querySelectorAll("section.group")];

function value(cell, kind) {
  const text = cell.dataset.v;
  if (kind !== "num") return text.toLowerCase();
  return text === "" ? NaN : Number(text);
}

function compare(a, b, sign) {
  // A missing number stays last in either direction.
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
  return a < b ? -sign : a > b ? sign : 0;
}

function sort(header, direction) {
  const table = header.closest("table");
  const column = [...header.parentNode.children].indexOf(header);
  const kind = header.querySelector("button").dataset.sort;
  const sign = direction === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [value(row.cells[column], kind), row]);
  rows.sort((a, b) => compare(a[0], b[0], sign));
  body.append(...rows.map((pair) => pair[1]));
  for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", direction);
}

// Where small is good, the first click brings the small ones up.
const SMALL_FIRST = /^(p50|p95|clipped|talk-over|cost)/;

for (const button of document.querySelectorAll("table.board th button")) {
  button.addEventListener("click", () => {
    const header = button.parentNode;
    const now = header.getAttribute("aria-sort");
    const up = button.dataset.sort === "text" || SMALL_FIRST.test(button.textContent);
    sort(header, now ? (now === "ascending" ? "descending" : "ascending") : up ? "ascending" : "descending");
  });
}

function scoreOf(row, category) {
  const cell = category && [...row.cells].find((c) => c.dataset.category === category);
  return category ? (cell ? value(cell, "num") : NaN) : Number(row.dataset.score || NaN);
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function seconds(value) {
  return `${value.toFixed(2).replace("-", "−")} s`;
}

function answer(group) {
  const slider = group.querySelector(".limit input");
  const limit = Number(slider.value);
  const category = form.elements.category.value;
  const text = `${limit.toFixed(1)} s`;
  group.querySelector(".limit output").textContent = text;
  slider.setAttribute("aria-valuetext", `${limit.toFixed(1)} seconds`);
  let best = null;
  let soonest = null;
  for (const row of group.querySelectorAll("tbody tr:not([hidden])")) {
    const median = Number(row.dataset.median || NaN);
    const score = scoreOf(row, category);
    const has = row.dataset.median !== "";
    if (has && (!soonest || median < soonest.median)) soonest = { row, median };
    const competes = row.dataset.role === "system" && median < limit && !Number.isNaN(score);
    if (competes && (!best || score > best.score || (score === best.score && median < best.median))) {
      best = { row, score, median };
    }
  }
  const line = group.querySelector(".pick");
  const what = category ? ` for ${category}` : "";
  if (best) {
    const link = element("a", best.row.dataset.label);
    link.href = best.row.querySelector("th a").getAttribute("href");
    line.replaceChildren("Under ", element("b", text), `${what}, pick `, link, ": score ",
      element("b", best.score.toFixed(2)), ", median latency ",
      element("b", `${best.median.toFixed(2).replace("-", "−")} s`), ".");
  } else {
    line.replaceChildren("Under ", element("b", text), `${what}: no competing system answers that soon.`);
    if (soonest) {
      const { role, label } = soonest.row.dataset;
      line.append(` The soonest here: ${label}${role === "system" ? "" : ` (${role})`}, median `,
        element("b", seconds(soonest.median)), ".");
    }
  }
  for (const row of group.querySelectorAll("tbody tr")) row.classList.toggle("best", best?.row === row);
  for (const chart of group.querySelectorAll("svg.scatter")) shade(chart, limit);
}

function shade(chart, limit) {
  const { low, high, start, end } = chart.dataset;
  const at = Number(start) + ((limit - low) / (high - low)) * (end - start);
  const from = Math.min(Math.max(at, Number(start)), Number(end));
  const beyond = chart.querySelector(".beyond");
  beyond.setAttribute("x", from);
  beyond.setAttribute("width", Number(end) - from);
}

function filter() {
  const { task, judge, backend, category } = Object.fromEntries(new FormData(form));
  let shown = 0;
  for (const group of groups) {
    let rows = 0;
    const fits = (!task || group.dataset.task === task) && (!judge || group.dataset.judge === judge);
    for (const row of group.querySelectorAll("tbody tr")) {
      row.hidden = Boolean(backend) && row.dataset.backend !== backend;
      if (!row.hidden) rows += 1;
      for (const point of group.querySelectorAll("a.point")) {
        if (point.dataset.key === row.dataset.key) point.toggleAttribute("hidden", row.hidden);
      }
    }
    for (const cell of group.querySelectorAll("[data-category]")) {
      cell.hidden = Boolean(category) && cell.dataset.category !== category;
    }
    group.hidden = !fits || rows === 0;
    if (!group.hidden) shown += rows;
    answer(group);
  }
  form.querySelector(".shown").textContent = `${shown} ${shown === 1 ? "system" : "systems"} shown`;
}

function byCategory() {
  const category = form.elements.category.value;
  for (const group of groups) {
    const wanted = [...group.querySelectorAll("thead th")].find((h) =>
      category ? h.dataset.category === category : h.textContent.trim().startsWith("score"));
    if (wanted) sort(wanted, "descending");
  }
}

if (form) {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", filter);
  form.elements.category.addEventListener("change", byCategory);
  for (const group of groups) {
    group.querySelector(".limit input").addEventListener("input", () => answer(group));
  }
  filter();
}
