// A pair of cases: what differs between two runs, word by word, and where the tool calls part.

const MOST_COMPARED = 100_000; // characters
const MOST_CELLS = 4_000_000;

function pairView(row, both) {
  const { first, second, pair } = both;
  const head = caseHead(row, second ?? first ?? {});
  if (!first || !second) return loneView(head, both);
  const sides = make("div", { class: "columns", tabindex: "0", role: "group", "aria-label": "A and B side by side" },
    side("A", first, pair.first_reasons), side("B", second, pair.second_reasons));
  markDivergence(sides, pair.trajectories?.divergence);
  const parted = pair.trajectories?.state === "parted";
  return [
    head,
    make("p", { class: parted ? "note" : "dim" }, both.calls),
    part("Scores", scoreTable(pair)),
    part("What B answers instead of A", answerDiffs(first, second)),
    part("Side by side", sides),
  ].filter(Boolean);
}

/** Return what is known of a case that only one run has, or whose other side is a baseline. */
function loneView(head, { first, second, pair }) {
  const only = first ?? second;
  if (!only) return [head, make("p", { class: "dim" }, "Not run.")];
  const why = [...(pair?.first_reasons ?? []).map((one) => `A: ${one}`), ...(pair?.second_reasons ?? [])];
  const outcome = pair?.first && OUTCOMES.get(pair.first).label.toLowerCase();
  const note = outcome ? `A: ${outcome}; its answer is not in the baseline.` : "A did not run.";
  return [
    head,
    pair && make("p", { class: "dim" }, note),
    reasons(why),
    pair && part("Scores", scoreTable(pair)),
    ...resultParts(only),
  ].filter(Boolean);
}

function side(name, result, why) {
  return make("div", { class: "column", role: "group", "aria-label": `Run ${name}` },
    make("h4", {}, `${name} `, chip(result.outcome ?? (result.passed ? "passed" : "failed"), OUTCOMES)),
    reasons(why ?? []), resultParts(result));
}

/** Mark the first call that is another one, and open it. */
function markDivergence(sides, divergence) {
  if (!divergence || divergence.repetition > 1) return;
  for (const column of sides.children) {
    const exchanges = column.querySelectorAll(".exchange");
    const call = exchanges[divergence.turn - 1]?.querySelectorAll(".call")[divergence.call - 1];
    if (call) {
      call.classList.add("parted");
      call.open = true;
    }
  }
}

function scoreTable(pair) {
  const numbers = [
    ...Object.entries(pair.scores ?? {}).map(([name, one]) => [name, one, score]),
    ["Cost of the agent", pair.cost, (value) => money(value, page.currency)],
    ["Tokens", pair.tokens, number],
    ["Latency", pair.latency_ms, milliseconds],
  ].filter(([, one]) => one && (known(one.first) || known(one.second)));
  const rows = numbers.map(([name, one, shown]) => {
    const isKnown = known(one.first) && known(one.second);
    const delta = isKnown ? one.second - one.first : 0;
    const change = delta === 0 ? (isKnown ? "same" : "–") : (delta < 0 ? "−" : "+") + shown(Math.abs(delta));
    return [name, known(one.first) ? shown(one.first) : "–", known(one.second) ? shown(one.second) : "–", change];
  });
  return rows.length ? table("Scores and numbers", ["", "A", "B", "Change"].map((name) => name || "Number"), rows) : null;
}

function known(value) {
  return value !== null && value !== undefined;
}

/** Return the answers of a result in order: of its turns, or of its first repetition. */
function answersOf(result) {
  if (result.repeats) return result.repeats.runs?.length ? answersOf(result.repeats.runs[0]) : [];
  if (result.turns?.length) return result.turns.map((turn) => turn.agent_response ?? "");
  return [result.agent_response ?? ""];
}

function answerDiffs(first, second) {
  const [before, after] = [answersOf(first), answersOf(second)];
  const count = Math.max(before.length, after.length);
  const blocks = [];
  for (let place = 0; place < count; place += 1) {
    const [old, current] = [before[place] ?? "", after[place] ?? ""];
    if (count > 1) blocks.push(label(`Turn ${place + 1}`));
    blocks.push(old === current ? make("p", { class: "dim" }, "The same words.") : diffText(old, current));
  }
  return blocks;
}

/** Return a text with what B added and what it left out. */
function diffText(before, after) {
  if (before.length + after.length > MOST_COMPARED) {
    return make("p", { class: "dim" }, "The answers differ, and are too long to compare word by word.");
  }
  const parts = diffWords(before, after).map(([kind, text]) =>
    kind === "same" ? make("span", {}, text) : make(kind === "new" ? "ins" : "del", {}, text));
  return make("div", { class: "text diff" }, parts);
}

/** Return [kind, text] pieces, kind being "same", "old" or "new". */
function diffWords(before, after) {
  const [old, current] = [words(before), words(after)];
  let start = 0;
  while (start < Math.min(old.length, current.length) && old[start] === current[start]) start += 1;
  let end = 0;
  const most = Math.min(old.length, current.length) - start;
  while (end < most && old.at(-1 - end) === current.at(-1 - end)) end += 1;
  const middle = [old.slice(start, old.length - end), current.slice(start, current.length - end)];
  const pieces = [
    ["same", old.slice(0, start).join("")],
    ...joinChanges(diffMiddle(...middle)),
    ["same", end ? old.slice(-end).join("") : ""],
  ];
  return pieces.filter(([, text]) => text !== "");
}

/** Join changes that only spaces separate, so that a new phrase is one change. */
function joinChanges(pieces) {
  const joined = [];
  let [old, current, gap] = ["", "", ""];
  const flush = () => {
    joined.push(["old", old], ["new", current], ["same", gap]);
    [old, current, gap] = ["", "", ""];
  };
  for (const [kind, text] of pieces) {
    if (kind === "same" && text.trim() === "" && (old || current)) gap += text;
    else if (kind === "same") {
      flush();
      joined.push([kind, text]);
    } else {
      old += gap + (kind === "old" ? text : "");
      current += gap + (kind === "new" ? text : "");
      gap = "";
    }
  }
  flush();
  return joined;
}

function words(text) {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

/** Compare by the longest common subsequence; texts with nothing in common are replaced whole. */
function diffMiddle(old, current) {
  const width = current.length + 1;
  if (!old.length || !current.length || (old.length + 1) * width > MOST_CELLS) {
    return [["old", old.join("")], ["new", current.join("")]];
  }
  const lengths = new Uint32Array((old.length + 1) * width);
  for (let row = old.length - 1; row >= 0; row -= 1) {
    for (let column = current.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] =
        old[row] === current[column]
          ? lengths[(row + 1) * width + column + 1] + 1
          : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
    }
  }
  return walk(old, current, lengths, width);
}

function walk(old, current, lengths, width) {
  const pieces = [];
  const add = (kind, text) => {
    if (pieces.at(-1)?.[0] === kind) pieces.at(-1)[1] += text;
    else pieces.push([kind, text]);
  };
  let [row, column] = [0, 0];
  while (row < old.length && column < current.length) {
    if (old[row] === current[column]) {
      add("same", old[row]);
      row += 1;
      column += 1;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) {
      add("old", old[row]);
      row += 1;
    } else {
      add("new", current[column]);
      column += 1;
    }
  }
  if (row < old.length) add("old", old.slice(row).join(""));
  if (column < current.length) add("new", current.slice(column).join(""));
  return pieces;
}
