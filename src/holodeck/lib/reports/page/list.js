// The list of cases: only the rows in sight are elements, so that any number opens at once.

const ROW_HEIGHT = 54; // as in page.css
const SPARE_ROWS = 8;
const UNDECIDED_OR_FAILED = new Set(["failed", "agent_error", "metric_error"]);
let shown = [];
let active = -1;
const rendered = new Map();

/** Show these rows; the active one stays active if it is among them. */
function showRows(rows) {
  const current = shown[active];
  shown = rows;
  active = shown.indexOf(current);
  const list = at("list");
  list.replaceChildren();
  rendered.clear();
  list.style.height = `${shown.length * ROW_HEIGHT}px`;
  list.hidden = shown.length === 0;
  at("empty").hidden = shown.length > 0;
  renderRows();
}

/** Make elements of the rows in sight, and of the active one, and remove the others. */
function renderRows() {
  const list = at("list");
  if (list.hidden || list.offsetParent === null) return;
  const top = list.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(-top / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.min(shown.length, Math.ceil((innerHeight - top) / ROW_HEIGHT) + SPARE_ROWS);
  const wanted = new Set();
  for (let place = first; place < last; place += 1) wanted.add(place);
  if (active >= 0) wanted.add(active);
  for (const [place, node] of rendered) {
    if (!wanted.has(place)) {
      node.remove();
      rendered.delete(place);
    }
  }
  for (const place of wanted) {
    if (!rendered.has(place)) {
      const node = rowElement(shown[place], place);
      rendered.set(place, node);
      list.append(node);
    }
  }
  markActive();
}

function markActive() {
  for (const [place, node] of rendered) node.setAttribute("aria-selected", String(place === active));
  const list = at("list");
  if (active >= 0) list.setAttribute("aria-activedescendant", `row-${shown[active].index}`);
  else list.removeAttribute("aria-activedescendant");
}

function rowElement(row, place) {
  const known = stateOf(row.outcome);
  const numbers = numbersOf(row);
  const name = row.group + row.title;
  const reason = row.reason ?? row.input ?? "";
  const node = make(
    "div",
    {
      role: "option",
      id: `row-${row.index}`,
      class: `row ${known.kind}`,
      "aria-posinset": place + 1,
      "aria-setsize": shown.length,
      "aria-label": [known.label, name, reason, numbers].filter(Boolean).join(", "),
      onclick: () => openCase(row, true),
    },
    make("span", { class: "mark" }, known.mark),
    make("span", { class: "name" }, name),
    make("span", { class: "numbers" }, row.cells && miniTrend(row), numbers),
    make("span", { class: "reason" }, reason),
  );
  node.style.transform = `translateY(${place * ROW_HEIGHT}px)`;
  return node;
}

function numbersOf(row) {
  if (page.kind === "runs") return passedOf(row);
  if (page.kind === "comparison") return row.delta ?? "";
  const lowest = lowestScore(row, UNDECIDED_OR_FAILED.has(row.outcome) && !metricChoice()[0]);
  return [
    lowest === undefined ? "" : lowest.toFixed(2),
    row.cost === undefined ? "" : money(row.cost, page.currency),
    row.ms === undefined || row.outcome === "skipped" ? "" : milliseconds(row.ms),
  ]
    .filter(Boolean)
    .join(" · ");
}

/** Make a row the active one, and scroll so that it is in sight. */
function activate(place) {
  if (!shown.length) return;
  active = Math.max(0, Math.min(shown.length - 1, place));
  const top = at("list").getBoundingClientRect().top + active * ROW_HEIGHT;
  const roof = at("controls").offsetHeight;
  if (top < roof) scrollBy(0, top - roof);
  else if (top + ROW_HEIGHT > innerHeight) scrollBy(0, top + ROW_HEIGHT - innerHeight);
  renderRows();
}
