// One case: why it did not pass, its conversation, its checks, its repetitions.

/** Return everything about a case. */
function caseView(row, result) {
  return [
    caseHead(row, result),
    trend(page.trends?.[row.index] ?? []),
    reasons(result.reasons ?? []),
    result.history?.length ? fold(`Earlier messages (${result.history.length})`, false, messages(result.history)) : null,
    ...resultParts(result),
  ].filter(Boolean);
}

/** Return the parts of a single run, or of all repetitions and tries, side by side. */
function resultParts(result) {
  if (result.repeats) return repetitions(result);
  return [...tries(result), ...singleRun(result)];
}

function singleRun(result) {
  const turns = result.turns ?? [];
  // What went wrong is above, and criteria have a part of their own.
  const whole = { ...result, errors: [], criteria: [], outcome: undefined };
  const parts = turns.length
    ? turns.map((turn, place) => exchange(turn, turn.input, `Turn ${place + 1}`))
    : [exchange(whole, result.test_input, "Conversation")];
  if (turns.length) parts.push(part("Checks of the conversation", checks(whole)));
  if (result.criteria?.length) parts.push(part("Criteria", checks({ criteria: result.criteria })));
  if (result.messages?.length) parts.push(fold("Transcript", !turns.length, messages(result.messages)));
  if (result.ending) parts.push(ending(result.ending));
  if (result.raised?.length) parts.push(part("Raised", result.raised.map(traceback)));
  return [...parts, costs(result)].filter(Boolean);
}

function part(title, content) {
  if (!content || (Array.isArray(content) && !content.length)) return null;
  return make("section", {}, make("h3", {}, title), content);
}

function caseHead(row, result) {
  const facts = [
    row.location && ["Written in", row.location],
    row.id && ["ID", row.id],
    row.tags?.length && ["Tags", row.tags.join(", ")],
    row.agents?.length && ["Agents", row.agents.join(", ")],
    row.ms !== undefined && result.outcome !== "skipped" && ["Time", milliseconds(row.ms)],
    result.agent_time_ms && ["Agent", milliseconds(result.agent_time_ms)],
    row.tokens && ["Tokens", number(row.tokens)],
    row.cost !== undefined && ["Cost", money(row.cost, page.currency)],
    result.timestamp && ["Ended", result.timestamp],
  ].filter(Boolean);
  return make(
    "header",
    {},
    make("div", { class: "line" },
      make("button", { type: "button", class: "quiet back", onclick: closeCase }, "← List"),
      chip(row.outcome),
      make("span", { class: "grow" }),
      make("a", { class: "quiet", href: caseAddress(row) }, "Link to this case")),
    make("h2", {}, make("span", { class: "dim" }, row.group), row.title),
    pairs("facts", facts),
  );
}

function caseAddress(row) {
  return "#" + new URLSearchParams({ case: row.key });
}

function reasons(list) {
  if (!list.length) return null;
  const items = list.map((one) => make("li", {}, longText(one)));
  return make("section", { class: "why", "aria-label": "Reasons" }, make("ul", {}, items));
}

function ending(end) {
  const why = end.reasoning ?? end.code.replaceAll("_", " ");
  return part("How it ended", [longText(why), end.raised ? traceback(end.raised) : null]);
}

function costs(result) {
  const usage = result.token_usage;
  const cost = result.cost;
  const lines = [
    usage && ["Agent", `${number(usage.prompt_tokens ?? 0)} + ${number(usage.completion_tokens ?? 0)} tokens (prompt + completion)`],
    result.judge_cost && ["Judge", modelCost(result.judge_cost)],
    result.simulator_cost && ["Simulated user", modelCost(result.simulator_cost)],
    cost && ["Cost", ["agent", "judges", "simulators", "total"]
      .filter((name) => cost[name] !== undefined)
      .map((name) => `${name} ${cost[name] === null ? "unknown" : money(cost[name], cost.currency)}`)
      .join(", ")],
    cost?.unknown?.length && ["Unknown", cost.unknown.join("; ")],
  ].filter(Boolean);
  return lines.length ? fold("Tokens and cost", false, pairs("facts", lines)) : null;
}

function modelCost(cost) {
  const tokens = cost.tokens?.total_tokens ?? 0;
  return `${cost.model ?? "several models"}, ${plural(cost.calls ?? 0, "call")}, ${plural(tokens, "token")}`;
}

/** Return the earlier tries of a case that was retried as a whole. */
function tries(result) {
  const list = result.tries ?? [];
  if (!list.length) return [];
  return [part(`Tries (${list.length + 1})`, columns([...list, { ...result, tries: [] }], "Try"))];
}

function repetitions(result) {
  const { repeats } = result;
  const runs = repeats.runs ?? [];
  const spread = (repeats.spread ?? []).map((one) => [
    one.metric_name, score(one.mean), score(one.least), score(one.most), score(one.deviation), String(one.scored ?? 0),
  ]);
  const names = ["Metric", "Mean", "Least", "Most", "Deviation", "Scored"];
  const interval = repeats.interval
    ? `; 95 % interval ${repeats.interval.map((one) => (100 * one).toFixed(0) + " %").join(" to ")}`
    : "";
  const passed = `${repeats.passed} of ${runs.length} repetitions passed, ${repeats.needed} needed${interval}`;
  return [
    part("Repetitions", [
      make("p", {}, passed),
      spread.length ? table("Spread of the scores", names, spread) : null,
      columns(runs, "Repetition"),
    ].filter(Boolean)),
  ];
}

/** Return several runs of a case side by side; the page scrolls sideways inside, not as a whole. */
function columns(runs, what) {
  const cells = runs.map((run, place) =>
    make("div", { class: "column", role: "group", "aria-label": `${what} ${place + 1}` },
      make("h4", {}, `${what} ${place + 1} `, chip(run.outcome ?? (run.passed ? "passed" : "failed"), OUTCOMES)),
      (run.errors ?? []).map((error) => longText(error, "text bad")),
      singleRun(run)));
  return make("div", { class: "columns", tabindex: "0", role: "group", "aria-label": `${what}s side by side` }, cells);
}

/** Return how a case ended in the recorded runs, the oldest first; nothing for a single run. */
function trend(list) {
  if (list.length < 2) return null;
  const items = list.map((past, place) => {
    const known = stateOf(past.outcome);
    const mean = past.score === null ? "" : `, score ${score(past.score)}`;
    const facts = `${past.run}: ${known.label}${mean}, ${milliseconds(past.elapsed_ms)}`;
    return make("li", { class: `${known.kind}${place === list.length - 1 ? " now" : ""}`, title: facts },
      make("span", { "aria-hidden": "true" }, known.mark),
      make("span", { class: "unseen" }, facts));
  });
  const passed = list.filter((past) => past.outcome === "passed").length;
  return make("section", { class: "past", "aria-label": "Earlier runs" },
    label(`Passed in ${passed} of ${list.length} recorded runs`), make("ol", { class: "trend" }, items));
}
