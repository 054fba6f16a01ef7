// All recorded runs: their pass rates, how each case went over time, and any two runs compared.

const MINI_CELLS = 20; // of the newest runs, in the list
const RUN_PASSES = new Set(["passed", "flaky"]);
const RUN_UNDECIDED = new Set(["agent_error", "metric_error", "unchecked"]);

/** Whether the list shows the verdicts on pairs of results. */
function isComparing() {
  return page.kind === "comparison" || (runOf(state.a) !== undefined && runOf(state.b) !== undefined);
}

function runOf(name) {
  return page.runs?.find((run) => run.id === name);
}

function runTitle(run) {
  const tags = run.tags.length ? ` (${run.tags.join(", ")})` : "";
  return `${startOf(run) || run.id}${tags}`;
}

function rateOf(run) {
  return run.ran ? `${((100 * run.passed) / run.ran).toFixed(1)} %` : "nothing ran";
}

function startOf(run) {
  return run.started.slice(0, 19).replace("T", " ");
}

/** Show the runs above the list. */
function showRuns() {
  if (page.kind !== "runs") return;
  at("runs").replaceChildren(passRates(), comparisonForm(), runsTable());
}

/** Return a bar for each run, as high as its pass rate. */
function passRates() {
  const bars = page.runs.map((run) => {
    const facts = `${runTitle(run)}: ${rateOf(run)}`;
    const parts = [["bad", run.ran - run.passed], ["good", run.passed]].map(([kind, count]) => {
      const part = make("span", { class: kind, "aria-hidden": "true" });
      part.style.flexGrow = count;
      return part;
    });
    return make("li", { title: facts }, parts, make("span", { class: "unseen" }, facts));
  });
  return make("section", { "aria-label": "Pass rates, the oldest run first" },
    label("Pass rate of each run, the oldest first"), make("ol", { class: "rates" }, bars));
}

function comparisonForm() {
  const choose = (name, title) =>
    make("select", { id: `choose-${name}`, "aria-label": title,
      onchange: (event) => compareRuns({ [name]: event.target.value }) },
      make("option", { value: "" }, title),
      [...page.runs].reverse().map((run) =>
        make("option", { value: run.id }, `${runTitle(run)}, ${rateOf(run)}`)));
  return make("div", { class: "line", role: "group", "aria-label": "Compare two runs" },
    make("span", {}, "Compare"), choose("a", "Run A"), make("span", {}, "with"), choose("b", "Run B"),
    make("button", { type: "button", class: "quiet", id: "all-runs", onclick: () => compareRuns({ a: "", b: "" }) },
      "All runs again"));
}

function runsTable() {
  const isOfSeveral = new Set(page.runs.map((run) => run.agent)).size > 1;
  const columns = ["Run", ...(isOfSeveral ? ["Agent"] : []), "ID", "Passed", "Cost", "Time", "Commit", "Compare"];
  const rows = page.runs.map((run, place) => {
    const before = page.runs.slice(0, place).findLast((one) => one.agent === run.agent);
    return [
      runTitle(run),
      ...(isOfSeveral ? [run.agent] : []),
      make("span", { class: "code" }, run.id),
      `${run.passed} of ${run.ran}${run.state === "finished" ? "" : `, ${run.state}`}${run.selected ? ", a selection" : ""}`,
      run.cost === null ? "" : money(run.cost, run.currency),
      run.wall_time_ms === null ? "" : milliseconds(run.wall_time_ms),
      run.commit?.slice(0, 10) ?? "",
      before ? make("button", { type: "button", class: "quiet", "aria-label": `Compare ${runTitle(run)} with the run before`,
        onclick: () => compareRuns({ a: before.id, b: run.id }) }, "with the run before") : "",
    ];
  });
  return fold(plural(page.runs.length, "run"), false,
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "All runs" },
      table("Runs", columns, rows.reverse())));
}

/** Compare two runs, or show all runs again; filters by outcome mean something else then. */
function compareRuns(chosen) {
  change({ ...chosen, filter: "" });
}

let compared = "";

/** Give each row the outcome of its last run, or the verdict on its results in the chosen runs. */
function judgeRows() {
  if (page.kind !== "runs") return;
  at("all-runs").hidden = !state.a && !state.b;
  const chosen = isComparing() ? `${state.a} ${state.b}` : "";
  if (chosen === compared) return;
  compared = chosen;
  const places = [state.a, state.b].map((id) => page.runs.findIndex((run) => run.id === id));
  for (const row of page.rows) {
    row.outcome = isComparing() ? pairVerdict(...places.map((place) => row.cells[place])) : row.last;
  }
  showCompared();
  showBar();
  makeControls();
  if (opened !== null) void openCase(opened, false);
}

/** Return the verdict on two outcomes of a case; null if neither run has it. */
function pairVerdict(first, second) {
  const isMissing = [first, second].map((one) => one === null || one === undefined);
  if (isMissing[0] && isMissing[1]) return null;
  if (isMissing[1]) return "vanished";
  if (isMissing[0]) return second === "failed" ? "new_failure" : "new";
  if (first === "skipped" || second === "skipped") return "not_run";
  if (RUN_UNDECIDED.has(first) || RUN_UNDECIDED.has(second)) return "undecided";
  const verdicts = { 11: "both", 10: "only_first", "01": "only_second", "00": "neither" };
  return verdicts[`${Number(RUN_PASSES.has(first))}${Number(RUN_PASSES.has(second))}`];
}

/** Say which runs are compared, and what else is different. */
function showCompared() {
  const [first, second] = [runOf(state.a), runOf(state.b)];
  const notes = page.notes.map((note) => make("p", { class: "note" }, note));
  if (first && second) {
    notes.push(make("p", { class: "conclusions" },
      `A is the run of ${runTitle(first)}, ${rateOf(first)}; B is that of ${runTitle(second)}, ${rateOf(second)}. `,
      `${differences(first, second)} For answers and tool calls: holodeck compare ${first.id} ${second.id}`));
  }
  at("notes").replaceChildren(...notes);
}

/** Return what changed between two runs, as far as the records say. */
function differences(first, second) {
  const parts = new Set([...Object.keys(first.hashes), ...Object.keys(second.hashes)]);
  const changed = [...parts].filter((part) => first.hashes[part] !== second.hashes[part]);
  const commits = first.commit && second.commit && first.commit !== second.commit
    ? `commit ${first.commit.slice(0, 10)} → ${second.commit.slice(0, 10)}` : "";
  const found = [...changed, commits].filter(Boolean);
  return found.length ? `Changed between them: ${found.join(", ")}.` : "Nothing that the records know changed between them.";
}

function miniTrend(row) {
  const cells = row.cells.slice(-MINI_CELLS).map((outcome) =>
    make("i", { class: outcome ? OUTCOMES.get(outcome).kind : "none" }));
  return make("span", { class: "mini", "aria-hidden": "true" }, cells);
}

/** Return how often a case passed in the runs that decided about it. */
function passedOf(row) {
  const decided = row.cells.filter((outcome) => RUN_PASSES.has(outcome) || outcome === "failed");
  return `${decided.filter((outcome) => RUN_PASSES.has(outcome)).length}/${decided.length}`;
}

/** Return how a case went in all runs: since when it changed, and each of its results. */
function historyView(row, data) {
  const past = data.past ?? [];
  return [
    caseHead(row, {}),
    trend(past),
    changeNote(data.change),
    !data.change && data.failing_since && make("p", { class: "note" }, `It has failed since the run of ${runTitle(runOf(data.failing_since))}.`),
    data.is_flaky && make("p", { class: "note" },
      "Flaky: it passed and failed in turns, or among repetitions, while nothing changed that the records know."),
    isComparing() && part("The two runs", resultsTable([state.b, state.a], row, past)),
    part("Results", resultsTable([...page.runs].reverse().map((run) => run.id), row, past)),
  ].filter(Boolean);
}

function changeNote(change) {
  if (!change) return null;
  const [before, since] = [runOf(change.before), runOf(change.run)];
  const p = change.p_value < 0.0001 ? "p < 0.0001" : `p = ${change.p_value.toPrecision(2)}`;
  return make("div", { class: "note" },
    make("p", {}, `Since the run of ${runTitle(since)} it passes ${change.passed_since} of ${change.ran_since} times; before, ` +
      `${change.passed_before} of ${change.ran_before} (${p}, exact test of Worsley). ${differences(before, since)}`),
    make("button", { type: "button", class: "quiet", onclick: () => compareRuns({ a: before.id, b: since.id }) },
      "Compare the run before with it"));
}

function resultsTable(ids, row, past) {
  const results = new Map(past.map((one) => [one.run, one]));
  const rows = ids.flatMap((id) => {
    const outcome = row.cells[page.runs.findIndex((run) => run.id === id)];
    if (!outcome) return [];
    const known = results.get(id);
    const facts = known
      ? [score(known.score), make("span", { class: "score" }, milliseconds(known.elapsed_ms)), known.reason ?? ""]
      : ["", "", "the result of the run that it resumed"];
    return [[runTitle(runOf(id)), chip(outcome, OUTCOMES), ...facts]];
  });
  return rows.length ? table("Results", ["Run", "Outcome", "Score", "Time", "Reason"], rows) : null;
}
