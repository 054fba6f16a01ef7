// Elements and texts. Every text reaches the page through `make`, which shows it as it is.
"use strict";

// Characters that hide or reorder text: the same as in holodeck/lib/support/text.py, which a test compares.
const UNSEEN = new RegExp(
  "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\u115f\\u1160\\u3164\\uffa0\\ufeff\\ufff0-\\ufffb\\ufffe\\uffff" +
    "\\u{d800}-\\u{dfff}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]",
  "gu",
);
const LONG_TEXT = 20_000;

/** Return the text with invisible and control characters escaped. */
function visible(text) {
  return String(text).replaceAll("\r\n", "\n").replace(UNSEEN, (character) => {
    const code = character.codePointAt(0);
    if (character === "\r") return "\\r";
    if (code <= 0xff) return "\\x" + code.toString(16).padStart(2, "0");
    if (code <= 0xffff) return "\\u" + code.toString(16).padStart(4, "0");
    return "\\U" + code.toString(16).padStart(8, "0");
  });
}

/** Return a new element. Attributes that begin with "on" are listeners; empty children are left out. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (child instanceof Node) node.append(child);
    else node.append(document.createTextNode(visible(child)));
  }
  return node;
}

function at(id) {
  return document.getElementById(id);
}

/** Return a text of several lines; of a long one the beginning, and a button that shows all of it. */
function longText(text, kind = "text") {
  const whole = String(text);
  if (whole.length <= LONG_TEXT) return make("div", { class: kind }, whole);
  const block = make("div", { class: kind }, whole.slice(0, LONG_TEXT) + " …");
  const label = `Show all ${number(whole.length)} characters`;
  const button = make("button", { type: "button", class: "quiet", onclick: showAll }, label);
  function showAll() {
    block.textContent = visible(whole);
    button.remove();
  }
  return make("div", {}, block, button);
}

function plural(count, thing) {
  return `${number(count)} ${count === 1 ? thing : thing + "s"}`;
}

function number(value) {
  return value.toLocaleString("en-US");
}

function milliseconds(value) {
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(1)} s`;
  return `${Math.floor(value / 60_000)} min ${Math.round((value % 60_000) / 1000)} s`;
}

function money(value, currency) {
  const digits = value >= 1 || value === 0 ? value.toFixed(2) : String(Number(value.toPrecision(3)));
  return `${digits} ${currency ?? ""}`.trim();
}

function score(value) {
  return value === null || value === undefined ? "–" : String(Number(value.toFixed(4)));
}

const OUTCOMES = new Map([
  ["failed", { label: "Failed", mark: "✗", kind: "bad" }],
  ["agent_error", { label: "Agent error", mark: "!", kind: "error" }],
  ["metric_error", { label: "Metric error", mark: "!", kind: "error" }],
  ["unchecked", { label: "Unchecked", mark: "?", kind: "error" }],
  ["flaky", { label: "Flaky", mark: "~", kind: "flaky" }],
  ["passed", { label: "Passed", mark: "✓", kind: "good" }],
  ["skipped", { label: "Skipped", mark: "–", kind: "dim" }],
]);
const VERDICTS = new Map([
  ["only_first", { label: "Regression", mark: "✗", kind: "bad" }],
  ["new_failure", { label: "New failure", mark: "✗", kind: "bad" }],
  ["undecided", { label: "Undecided", mark: "!", kind: "error" }],
  ["not_run", { label: "Not run", mark: "–", kind: "dim" }],
  ["only_second", { label: "Fixed", mark: "✓", kind: "good" }],
  ["neither", { label: "Passed on neither", mark: "✗", kind: "flaky" }],
  ["both", { label: "Passed on both", mark: "✓", kind: "good" }],
  ["vanished", { label: "Only in A", mark: "–", kind: "dim" }],
  ["new", { label: "Only in B", mark: "+", kind: "good" }],
  ["skipped", { label: "Skipped", mark: "–", kind: "dim" }],
]);

/** Return what the page says of an outcome or of the verdict on a pair: label, mark and color. */
function stateOf(name) {
  const known = isComparing() ? VERDICTS.get(name) : undefined;
  return known ?? OUTCOMES.get(name) ?? { label: String(name), mark: "?", kind: "dim" };
}

function chip(name, states = null) {
  const state = (states ?? new Map()).get(name) ?? stateOf(name);
  const mark = make("span", { class: "mark", "aria-hidden": "true" }, state.mark);
  return make("span", { class: `chip ${state.kind}` }, mark, state.label);
}

/** Return a table; cells are texts or elements. `label` names it for screen readers. */
function table(label, columns, rows) {
  const head = columns.map((column) => make("th", { scope: "col" }, column));
  const body = rows.map((cells) =>
    make(
      "tr",
      {},
      cells.map((cell, place) =>
        place === 0
          ? make("th", { scope: "row" }, cell)
          : make("td", { "data-label": columns[place] }, cell),
      ),
    ),
  );
  return make(
    "table",
    { "aria-label": label },
    make("thead", {}, make("tr", {}, head)),
    make("tbody", {}, body),
  );
}

function pairs(kind, items) {
  const lines = items.map(([label, value]) =>
    make("div", {}, make("dt", {}, label), make("dd", {}, value)),
  );
  return make("dl", { class: kind }, lines);
}
