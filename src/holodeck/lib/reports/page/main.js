// The page as a whole: summary, controls, keyboard, theme, print.

const STATE_NAMES = ["suite", "agent", "tag", "metric", "differs", "trend", "sort", "a", "b"];
const LIST_STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
const VIEWS = { comparison: pairView, runs: historyView };
const KEYS = [
  ["/", "Search"],
  ["j, ↓", "Next case"],
  ["k, ↑", "Previous case"],
  ["Enter", "Read the case"],
  ["Esc", "Back to the list; leave the search"],
  ["?", "These keys"],
];

function showSummary() {
  document.title = visible(page.title);
  at("title").textContent = visible(page.title);
  at("verdict").textContent = visible(page.verdict);
  at("verdict").className = `verdict ${page.verdict.replaceAll(" ", "-")}`;
  at("counts").textContent = visible(page.counts);
  at("figures").replaceWith(Object.assign(pairs("figures", page.figures), { id: "figures" }));
  at("notes").replaceChildren(...page.notes.map((note) => make("p", { class: "note" }, note)));
  if (page.conclusions.length) at("notes").append(make("p", { class: "conclusions" }, page.conclusions.join(" ")));
  at("facts").replaceChildren(pairs("facts", page.facts));
  const metrics = (page.metrics ?? []).map((one) => [
    one.name,
    one.error === null ? score(one.mean) : `${score(one.mean)} ± ${score(one.error)}`,
    number(one.scored),
    number(one.broken),
  ]);
  const names = ["Metric", "Mean ± standard error", "Scored", "Errors"];
  if (metrics.length) at("facts").append(table("Metrics", names, metrics));
  at("about").hidden = !page.facts.length && !metrics.length;
  showBar();
}

/** Show the shares of the outcomes as a bar. */
function showBar() {
  const counts = countOutcomes(page.rows);
  at("bar").setAttribute("aria-label", visible(page.counts));
  at("bar").replaceChildren(
    ...counts.map(([name, count]) => {
      const share = make("span", { class: stateOf(name).kind });
      share.style.flexGrow = count;
      return share;
    }),
  );
}

/** Return how many rows have each outcome, the worst first. */
function countOutcomes(rows) {
  const counts = new Map();
  for (const row of rows.filter((one) => one.outcome !== null)) counts.set(row.outcome, (counts.get(row.outcome) ?? 0) + 1);
  return [...counts].sort(([one], [other]) => severity({ outcome: one }) - severity({ outcome: other }));
}

function makeControls() {
  const counts = countOutcomes(page.rows);
  at("states").replaceChildren(
    ...counts.map(([name, count]) =>
      make("button", { type: "button", class: `chip ${stateOf(name).kind}`, "data-state": name,
        onclick: () => toggleOutcome(name) },
        make("span", { class: "mark", "aria-hidden": "true" }, stateOf(name).mark),
        `${stateOf(name).label} `, make("b", {}, number(count)))),
  );
  const suites = valuesOf("suite");
  const agents = valuesOf("agent");
  const tags = valuesOf("tags");
  const metrics = metricsOf().flatMap((name) => [[name, name], [`!${name}`, `${name}: failed`]]);
  const named = (values) => values.map((value) => [value, value]);
  const isParted = page.rows.some((row) => row.trajectories === "parted");
  const orders = [...ORDERS].filter(([name]) => isUseful(name));
  at("selects").replaceChildren(
    ...[
      suites.length > 1 && choice("suite", "All suites", named(suites)),
      agents.length > 1 && choice("agent", "All agents", named(agents)),
      tags.length && choice("tag", "All tags", named(tags)),
      metrics.length && choice("metric", "All metrics", metrics),
      page.rows.some((row) => row.changed || row.flaky) && choice("trend", "All trends",
        [["changed", "With a change"], ["flaky", "Flaky"]]),
      isParted && choice("differs", "Same or other calls", [["calls", "Other tool calls"]]),
      choice("sort", null, orders),
    ].filter(Boolean),
  );
}

function isUseful(order) {
  if (order === "cost") return page.rows.some((row) => row.cost !== undefined);
  if (order === "tokens") return page.rows.some((row) => row.tokens !== undefined);
  if (order === "score") return page.rows.some((row) => row.scores);
  if (order === "slow") return page.kind !== "runs";
  if (order === "change") return page.rows.some((row) => row.changed);
  return true;
}

function choice(name, everything, options) {
  const list = everything === null ? options : [["", everything], ...options];
  const label = { suite: "Suite", agent: "Agent", tag: "Tag", metric: "Metric", differs: "Tool calls", trend: "Trend", sort: "Order" }[name];
  return make("select", { id: `choose-${name}`, "aria-label": label,
    onchange: (event) => change({ [name]: event.target.value }) },
    list.map(([value, text]) => make("option", { value }, text)));
}

function toggleOutcome(name) {
  const chosen = new Set(state.filter.split(",").filter(Boolean));
  if (!chosen.delete(name)) chosen.add(name);
  change({ filter: [...chosen].join(",") });
}

/** Change the state, and show what it selects. */
function change(changes) {
  Object.assign(state, changes);
  writeAddress();
  refresh();
}

function refresh() {
  judgeRows();
  const chosen = new Set(state.filter.split(",").filter(Boolean));
  for (const button of at("states").children) {
    button.setAttribute("aria-pressed", String(chosen.has(button.dataset.state)));
  }
  for (const name of STATE_NAMES) {
    const select = at(`choose-${name}`);
    if (select) select.value = state[name];
  }
  if (at("query").value !== state.q) at("query").value = state.q;
  if (deep.text !== state.q.trim()) void searchEverything(state.q.trim(), showCases);
  showCases();
}

function showCases() {
  const rows = shownRows();
  showRows(rows);
  const all = page.rows.length;
  const searching = deep.done ? "" : " · searching conversations …";
  at("count").textContent =
    (rows.length === all ? plural(all, page.thing) : `${number(rows.length)} of ${plural(all, page.thing)}`) + searching;
  at("clear").hidden = !["q", "filter", "suite", "agent", "tag", "metric", "differs", "trend"].some((name) => state[name]);
}

let opened = null;

/** Open a case; `isChosen` if the reader did it, so that the address names it. */
async function openCase(row, isChosen) {
  opened = row;
  active = shown.indexOf(row);
  renderRows();
  if (isChosen) {
    state.case = row.key;
    writeAddress(true);
  }
  document.body.classList.toggle("reading", state.case !== "");
  const view = at("case");
  let content;
  try {
    const result = await caseOf(row);
    content = (VIEWS[page.kind] ?? caseView)(row, result);
  } catch (error) {
    content = [make("p", { class: "bad" }, `This case cannot be shown: ${error}`)];
  }
  if (opened !== row) return; // another one was opened meanwhile
  view.replaceChildren(...content);
  view.setAttribute("aria-label", visible(`Case ${row.title}`));
  view.scrollTop = 0;
  if (isNarrow() && isChosen) {
    scrollTo(0, 0);
    view.focus({ preventScroll: true });
  }
}

function isNarrow() {
  return matchMedia("(max-width: 899px)").matches;
}

function closeCase() {
  state.case = "";
  writeAddress(true);
  document.body.classList.remove("reading");
  renderRows();
  if (active >= 0) activate(active);
  at("list").focus({ preventScroll: true });
}

/** Open the case that the address names; on a wide screen, else the first one. */
async function openAddressed() {
  const named = state.case && page.rows.find((row) => row.key === state.case);
  document.body.classList.toggle("reading", Boolean(named));
  if (named) {
    await openCase(named, false);
    if (active >= 0 && !isNarrow()) activate(active);
  } else if (state.case) {
    at("case").replaceChildren(make("p", { class: "dim" }, `No case is called ${state.case}.`));
  } else if (shown.length && !isNarrow() && opened === null) {
    await openCase(shown[0], false);
  }
}

function move(step) {
  activate(active < 0 ? 0 : active + step);
  if (!isNarrow() && shown[active]) void openCase(shown[active], true);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else if (state.case) closeCase();
    return;
  }
  if (isTyping) return;
  const isInList = event.target === at("list") || event.target === document.body;
  const steps = { j: 1, k: -1, ...(isInList ? LIST_STEPS : {}) };
  if (Object.hasOwn(steps, event.key)) move(steps[event.key]);
  else if (event.key === "/") at("query").focus();
  else if (event.key === "?") at("help").showModal();
  else if (event.key === "Enter" && isInList && shown[active]) {
    void openCase(shown[active], true).then(() => at("case").focus({ preventScroll: true }));
  } else return;
  event.preventDefault();
}

function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(`holodeck-${name}`, value);
    return localStorage.getItem(`holodeck-${name}`);
  } catch {
    return null; // the browser stores nothing for files
  }
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  at("theme").textContent = isDark() ? "Light" : "Dark";
  at("theme").setAttribute("aria-label", isDark() ? "Light colors" : "Dark colors");
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const MOST_PRINTED = 1000;

/** Put the shown cases on paper as a table: the list has elements for those in sight only. */
function preparePrint() {
  for (const part of at("case").querySelectorAll("details")) part.open = true;
  const rows = shown.slice(0, MOST_PRINTED).map((row) => [
    row.group + row.title,
    chip(row.outcome),
    numbersOf(row),
    row.reason ?? "",
  ]);
  const left = shown.length - rows.length;
  at("paper").replaceChildren(
    table("Cases", ["Case", "Outcome", "Numbers", "Reason"], rows),
    ...(left > 0 ? [make("p", {}, `${plural(left, "further case")} left out; filter the list to print them.`)] : []),
  );
}

let typing;

function listen() {
  at("query").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ q: event.target.value }), 120);
  });
  at("controls").addEventListener("submit", (event) => event.preventDefault());
  at("clear").addEventListener("click", () => {
    change({ q: "", filter: "", suite: "", agent: "", tag: "", metric: "", differs: "", trend: "" });
    at("query").focus();
  });
  at("theme").addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    remember("theme", theme);
    setTheme(theme);
  });
  at("keys").addEventListener("click", () => at("help").showModal());
  addEventListener("keydown", onKey);
  addEventListener("scroll", renderRows, { passive: true });
  addEventListener("resize", renderRows);
  addEventListener("beforeprint", preparePrint);
  addEventListener("afterprint", () => at("paper").replaceChildren());
  addEventListener("popstate", onAddress);
  addEventListener("hashchange", onAddress);
}

function onAddress() {
  readAddress();
  refresh();
  void openAddressed();
}

async function start() {
  const app = at("app");
  app.hidden = false;
  try {
    await readIndex();
  } catch (error) {
    app.replaceChildren(make("p", { class: "note" }, `The results cannot be read: ${error}. A current browser is needed.`));
    return;
  }
  at("help-keys").replaceChildren(...pairs("keys", KEYS.map(([key, what]) => [make("kbd", {}, key), what])).children);
  setTheme(remember("theme"));
  showSummary();
  showRuns();
  makeControls();
  listen();
  readAddress();
  refresh();
  await openAddressed();
  if ("live" in document.body.dataset) void follow();
  document.body.dataset.ready = "yes";
}

void start();
