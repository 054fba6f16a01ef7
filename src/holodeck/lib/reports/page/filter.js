// Which cases are shown, and in which order. The address after # holds it, so that it can be sent.

const DEFAULTS = {
  q: "", filter: "", suite: "", agent: "", tag: "", metric: "", differs: "", trend: "", sort: "worst", case: "",
  a: "", b: "",
};
const state = { ...DEFAULTS };
let deep = { text: "", found: new Set(), done: true };

const ORDERS = new Map([
  ["worst", "Worst first"],
  ["file", "Order of the file"],
  ["name", "Name"],
  ["slow", "Slowest first"],
  ["cost", "Most expensive first"],
  ["tokens", "Most tokens first"],
  ["score", "Lowest score first"],
  ["change", "Latest change first"],
]);

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
  if (!ORDERS.has(state.sort)) state.sort = DEFAULTS.sort;
}

/** Write the state into the address; a newly opened case becomes a step of the history. */
function writeAddress(isStep = false) {
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  const hash = "#" + new URLSearchParams(changed);
  if (hash === (location.hash || "#")) return;
  history[isStep ? "pushState" : "replaceState"](null, "", hash);
}

/** Return the values that rows have under a name, in alphabetical order. */
function valuesOf(name) {
  const found = new Set(page.rows.flatMap((row) => row[name] ?? []));
  return [...found].sort((one, other) => one.localeCompare(other));
}

function metricsOf() {
  return [...new Set(page.rows.flatMap((row) => Object.keys(row.scores ?? {})))].sort();
}

function metricOf(row, name) {
  return Object.hasOwn(row.scores ?? {}, name) ? row.scores[name] : undefined;
}

function isShown(row, outcomes, words) {
  if (row.outcome === null) return false; // neither of the compared runs has it
  if (outcomes.size && !outcomes.has(row.outcome)) return false;
  if (state.suite && row.suite !== state.suite) return false;
  if (state.agent && row.agent !== state.agent) return false;
  if (state.tag && !row.tags?.includes(state.tag)) return false;
  if (state.trend && !row[state.trend]) return false;
  if (state.differs === "calls" && row.trajectories !== "parted") return false;
  if (state.metric) {
    const [name, isFailed] = metricChoice();
    const found = metricOf(row, name);
    if (!found || (isFailed && found[1] !== false)) return false;
  }
  return words.every((word) => row.search.includes(word)) || deep.found.has(row.index);
}

/** Return the chosen metric, and whether only cases are shown that fail it. */
function metricChoice() {
  const isFailed = state.metric.startsWith("!");
  return [isFailed ? state.metric.slice(1) : state.metric, isFailed];
}

/** Return the rows to show, in order. */
function shownRows() {
  const outcomes = new Set(state.filter.split(",").filter(Boolean));
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = page.rows.filter((row) => isShown(row, outcomes, words));
  return rows.sort((one, other) => compareRows(one, other) || one.index - other.index);
}

function compareRows(one, other) {
  if (state.sort === "worst") return severity(one) - severity(other);
  if (state.sort === "name") return one.title.localeCompare(other.title);
  if (state.sort === "slow") return descending(one.ms, other.ms);
  if (state.sort === "cost") return descending(one.cost, other.cost);
  if (state.sort === "tokens") return descending(one.tokens, other.tokens);
  if (state.sort === "score") return ascending(lowestScore(one), lowestScore(other));
  if (state.sort === "change") return (other.changed ?? "").localeCompare(one.changed ?? "");
  return 0;
}

function severity(row) {
  const order = isComparing() ? VERDICTS : OUTCOMES;
  return [...order.keys()].indexOf(row.outcome);
}

// Unknown numbers come last.
function descending(one, other) {
  return (other ?? -1) - (one ?? -1);
}

function ascending(one, other) {
  return (one ?? Infinity) === (other ?? Infinity) ? 0 : (one ?? Infinity) - (other ?? Infinity);
}

/** Return the lowest score; as a reason for a failure, only of metrics that failed. */
function lowestScore(row, isReason = false) {
  const name = metricChoice()[0];
  const chosen = (name ? [metricOf(row, name)] : Object.values(row.scores ?? {}))
    .filter((found) => !isReason || found[1] === false);
  const known = chosen.flatMap((found) => (found && found[0] !== null ? [found[0]] : []));
  return known.length ? Math.min(...known) : undefined;
}

/** Find the cases whose conversation, tool calls or reasons contain the text; report as they come. */
async function searchEverything(text, onFound) {
  deep = { text, found: new Set(), done: text === "" };
  if (text === "") return;
  const mine = deep;
  for await (const indexes of rowsWith(text)) {
    if (deep !== mine) return; // another search has begun
    indexes.forEach((index) => mine.found.add(index));
    onFound();
  }
  mine.done = true;
  onFound();
}
