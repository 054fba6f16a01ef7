// Parts of a case: collapsible JSON, tool calls, checks, conversation.

const MOST_ENTRIES = 200;

/** Return a JSON value as a tree whose branches are made when they are opened. */
function jsonTree(value, isOpen = true) {
  const isArray = Array.isArray(value);
  if (value === null || typeof value !== "object" || value instanceof Written) return leaf(value);
  const entries = isArray ? value.map((one, place) => [String(place), one]) : Object.entries(value);
  if (!entries.length) return make("span", { class: "json" }, isArray ? "[ ]" : "{ }");
  const size = isArray ? plural(entries.length, "item") : plural(entries.length, "key");
  const body = make("div", { class: "branches" });
  const branch = make(
    "details",
    { class: "json", open: isOpen, ontoggle: () => fill() },
    make("summary", {}, isArray ? `[ ] ${size}` : `{ } ${size}`),
    body,
  );
  let done = 0;
  function fill(count = MOST_ENTRIES) {
    if (!branch.open || done >= entries.length || (done > 0 && count === MOST_ENTRIES)) return;
    for (const [key, one] of entries.slice(done, done + count)) {
      const name = make("span", { class: "key" }, key + ": ");
      body.append(make("div", { class: "entry" }, name, jsonTree(one, false)));
    }
    done += count;
    const left = entries.length - done;
    if (left > 0) {
      const more = make("button", { type: "button", class: "quiet" }, `Show ${number(left)} more`);
      more.addEventListener("click", () => {
        more.remove();
        fill(left);
      });
      body.append(more);
    }
  }
  fill();
  return branch;
}

function leaf(value) {
  if (value instanceof Written) return make("span", { class: "json number" }, value.source);
  if (typeof value === "string") {
    return value.length > 120 || value.includes("\n")
      ? longText(value, "json text")
      : make("span", { class: "json string" }, JSON.stringify(value));
  }
  return make("span", { class: "json number" }, String(value));
}

/** Return a small heading of something that needs no place in the outline. */
function label(...children) {
  return make("p", { class: "label" }, ...children);
}

/** Return a foldable part with a title. */
function fold(title, isOpen, ...children) {
  return make("details", { class: "fold", open: isOpen }, make("summary", {}, title), children);
}

function toolCall(call) {
  const name = call.server ? `${call.server}-${call.name}` : call.name;
  const facts = [
    call.agent && `by ${call.agent}`,
    call.duration_ms !== undefined && call.duration_ms !== null && milliseconds(call.duration_ms),
    call.prevented && "not run: it has side effects",
    call.stub && `stub: ${call.stub.kind}${call.stub.tool_ran ? ", the tool ran" : ""}`,
    call.error && "error",
  ].filter(Boolean);
  const isUnknown = call.unknown?.includes("args");
  return make(
    "details",
    { class: `call${call.error ? " bad" : ""}` },
    make(
      "summary",
      {},
      make("span", { class: "tool" }, name),
      make("span", { class: "brief" }, isUnknown ? "(arguments unknown)" : brief(call.args ?? {})),
      make("span", { class: "dim" }, facts.join(" · ")),
    ),
    label("Arguments"),
    isUnknown ? make("p", { class: "dim" }, "Unknown to the backend.") : jsonTree(call.args ?? {}),
    label(call.error ? "Error" : "Result"),
    call.error ? longText(call.error, "text bad") : jsonTree(call.result ?? null),
    call.raised ? traceback(call.raised) : null,
  );
}

/** Return the arguments of a call on one line, shortened. */
function brief(value) {
  const text = JSON.stringify(value, (key, one) =>
    one instanceof Written ? (JSON.rawJSON?.(one.source) ?? one.source) : one,
  );
  const inner = text.startsWith("{") ? text.slice(1, -1) : text;
  return `(${inner.length > 80 ? inner.slice(0, 79) + "…" : inner})`;
}

function traceback(raised) {
  const lines = [...(raised.traceback ?? []), ...(raised.excerpt ?? []), raised.error].join("\n");
  return make("div", {}, make("p", { class: "dim" }, `${raised.file}:${raised.line}`),
    longText(lines, "text code"));
}

const ROLES = new Map([["user", "User"], ["assistant", "Agent"], ["tool", "Tool"], ["system", "System"]]);

/** Return one message of a conversation, with its tool calls below. */
function message(role, text, calls = [], note = "") {
  const known = ROLES.get(role) ?? role;
  const isSilent = text === null || text === undefined || text === "";
  return make(
    "div",
    { class: `message ${ROLES.has(role) ? role : "other"}` },
    label(known, note && make("span", {}, ` ${note}`)),
    calls.map(toolCall),
    isSilent
      ? role === "assistant" && make("p", { class: "dim" }, "(no response)")
      : longText(contentText(text)),
  );
}

/** Return the text of a message's content, which may be a list of parts. */
function contentText(content) {
  if (typeof content === "string") return content;
  const parts = Array.isArray(content) ? content : [content];
  return parts
    .map((part) => (typeof part?.text === "string" ? part.text : JSON.stringify(part)))
    .join("\n");
}

/** Return the messages of a conversation in the format of chat completions. */
function messages(list) {
  return list.map((one) => {
    if (one === null || typeof one !== "object") return message("other", String(one));
    const calls = (one.tool_calls ?? []).map((call) => ({
      name: call.function?.name ?? "?",
      args: parsed(call.function?.arguments),
      unknown: [],
      result: "(see the message of the tool)",
    }));
    return message(one.role ?? "other", one.content, calls, one.name ? `(${one.name})` : "");
  });
}

function parsed(text) {
  if (typeof text !== "string") return text ?? {};
  try {
    return parse(text);
  } catch {
    return { arguments: text };
  }
}

const ANSWERS = { approve: "approved", reject: "rejected" };

/** Return everything that one input yielded: message, tool calls, response, checks. */
function exchange(seen, input, title) {
  const known = seen.tool_invocations ?? [];
  const unseen = !known.length && seen.tool_calls?.length ? seen.tool_calls.join(", ") : "";
  const time = seen.agent_time_ms ? milliseconds(seen.agent_time_ms) : "";
  return make(
    "div",
    { class: "exchange", role: "group", "aria-label": title },
    title === "Conversation" ? null : make("h3", {}, title, seen.outcome && chip(seen.outcome)),
    message("user", input),
    (seen.processed_files ?? []).map(file),
    message("assistant", seen.agent_response, known, time),
    seen.retrieval_context?.length
      ? fold(`Retrieved: ${seen.retrieval_context.length}`, false,
          seen.retrieval_context.map((passage) => longText(passage)))
      : null,
    unseen && make("p", {}, `Tools called: ${unseen}`),
    (seen.approvals ?? []).map((asked) =>
      make("p", {}, "Approval: ", make("span", { class: "tool" }, asked.tool),
        `${brief(asked.args ?? {})} ${ANSWERS[asked.answer] ?? "not answered"}`)),
    seen.ground_truth !== undefined && seen.ground_truth !== null
      ? make("div", { class: "message expected" }, label("Expected"),
          longText(seen.ground_truth))
      : null,
    checks(seen),
    (seen.errors ?? []).map((error) => longText(error, "text bad")),
    seen.attempts?.length ? attempts(seen.attempts) : null,
    seen.handled_requests?.length ? handledRequests(seen.handled_requests) : null,
    seen.model_requests?.length ? modelRequests(seen.model_requests) : null,
    seen.trace ? spans(seen.trace) : null,
  );
}

function file(one) {
  const source = one.original?.path ?? one.original?.url ?? "";
  const title = `File ${one.original?.description ?? source}`;
  return fold(title, false, one.error ? longText(one.error, "text bad") : longText(one.markdown_content));
}

function attempts(list) {
  const rows = list.map((one) => [
    String(one.number),
    longText(one.error),
    one.retry_after_ms === null || one.retry_after_ms === undefined
      ? "–"
      : milliseconds(one.retry_after_ms),
  ]);
  const title = plural(list.length, "failed attempt");
  return fold(title, false, table("Failed attempts", ["Attempt", "Error", "Waited"], rows));
}

function modelRequests(list) {
  const rows = list.map((one, place) => [
    `${place + 1}`,
    one.model,
    String(one.status ?? "no response"),
    milliseconds(one.elapsed_ms ?? 0),
    one.token_usage ? number(one.token_usage.total_tokens ?? 0) : "unknown",
  ]);
  const columns = ["Request", "Model", "Status", "Time", "Tokens"];
  return fold(plural(list.length, "model request"), false, table("Model requests", columns, rows));
}

/** Return the requests that a scripted model answered, or that have faults. */
function handledRequests(list) {
  const rows = list.map((request, place) => {
    const reply = request.reply ?? null;
    const told = reply === null ? [] : [`scripted reply ${Number(reply) + 1}`];
    const faults = (request.faults ?? []).map((fault) => `fault: ${fault}`);
    return [`${place + 1}`, [...told, ...faults].join(", ") || "–", request.problem ?? ""];
  });
  const columns = ["Request", "Answer", "Problem"];
  const title = plural(list.length, "handled model request");
  return fold(title, false, table("Handled model requests", columns, rows));
}

function spans(trace) {
  const list = trace.spans ?? [];
  const items = list.map((one) => {
    const took = Number(wholeNumber(one.ended_ns) - wholeNumber(one.started_ns)) / 1e6;
    return make("div", { class: "entry" },
      make("span", { class: "tool" }, one.name),
      make("span", { class: "dim" }, ` ${one.status ?? "unset"} · ${milliseconds(took)} `),
      Object.keys(one.attributes ?? {}).length ? jsonTree(one.attributes, false) : null);
  });
  const problem = trace.problem ? make("p", { class: "bad" }, trace.problem) : null;
  return fold(plural(list.length, "span"), false, problem, items);
}

function wholeNumber(value) {
  return BigInt(value instanceof Written ? value.source : Math.round(value ?? 0));
}

/** Return a table of metrics, checks of tools and criteria; nothing without any. */
function checks(seen) {
  const rows = [
    ...(seen.tool_checks ?? []).map((one) => [
      make("span", {}, one.expectation),
      checkState(one.error ? "error" : one.passed),
      "",
      longText(one.error ?? one.reason ?? ""),
    ]),
    ...(seen.metric_results ?? []).map((one) => [
      make("span", {}, one.metric_name, one.required === false && make("small", {}, " reported only")),
      checkState(one.error ? "error" : one.inconclusive ? "inconclusive" : one.passed),
      scoreCell(one),
      metricReason(one),
    ]),
    ...(seen.criteria ?? []).map((one) => [
      make("span", {}, one.criterion, one.required === false && make("small", {}, " reported only")),
      checkState({ passed: true, failed: false }[one.status] ?? one.status),
      "",
      make(
        "div",
        {},
        longText(one.reasoning ?? ""),
        one.judge_trust ? make("small", {}, `judge ${judgeTrust(one)}`) : null,
      ),
    ]),
  ];
  return rows.length ? table("Checks", ["Check", "Verdict", "Score", "Reason"], rows) : null;
}

const CHECKS = new Map([
  [true, { label: "Pass", mark: "✓", kind: "good" }],
  [false, { label: "Fail", mark: "✗", kind: "bad" }],
  ["error", { label: "Error", mark: "!", kind: "error" }],
  ["inconclusive", { label: "Inconclusive", mark: "?", kind: "error" }],
]);

function checkState(verdict) {
  return CHECKS.has(verdict) ? chip(verdict, CHECKS) : make("span", { class: "dim" }, "Reported");
}

function scoreCell(row) {
  const limit = row.threshold === null || row.threshold === undefined ? "" : ` / ${score(row.threshold)}`;
  return make("span", { class: "score", title: "score / threshold" }, score(row.score) + limit);
}

/** Return how far the judge is trusted, and by which limits. */
function judgeTrust(row) {
  const limits = row.judge_limits;
  if (!limits) return row.judge_trust;
  const kappa = `kappa ≥ ${score(limits.min_kappa)}`;
  return `${row.judge_trust} (${kappa}, false passes ≤ ${score(limits.max_false_passes * 100)} %)`;
}

function metricReason(row) {
  const judge = row.model_used || row.judge_calls
    ? [
        row.model_used && `judge ${row.model_used}`,
        judgeTrust(row),
        row.judge_calls && plural(row.judge_calls, "call"),
        row.judge_failed && `${row.judge_failed} failed`,
        row.judge_tokens?.total_tokens && plural(row.judge_tokens.total_tokens, "token"),
        row.judge_ms && milliseconds(row.judge_ms),
      ].filter(Boolean).join(", ")
    : "";
  return make(
    "div",
    {},
    row.error ? longText(row.error, "text bad") : null,
    row.reasoning ? longText(row.reasoning) : null,
    row.raised ? traceback(row.raised) : null,
    row.raw_score !== undefined && row.raw_score !== null
      ? make("small", {}, `raw score ${score(row.raw_score)} of ${row.raw_scale ?? "?"} `)
      : null,
    row.note ? make("small", {}, `${row.note} `) : null,
    judge && make("small", {}, judge),
    row.votes?.length ? votes(row.votes) : null,
    row.judge_prompts?.length ? prompts(row.judge_prompts) : null,
  );
}

/** Return what a judge was sent, folded. */
function prompts(list) {
  const blocks = list.map((one) => longText(one));
  return fold(plural(list.length, "prompt") + " of the judge", false, blocks);
}

/** Return what a judge was asked, and each of its answers. */
function votes(list) {
  const questions = Map.groupBy(list, (one) => one.question);
  const blocks = [...questions].map(([question, answers]) => {
    const items = answers.map((one) =>
      make("li", {}, `${one.answer} (${score(one.score)})`, one.reason && `: ${one.reason}`),
    );
    return make("div", {}, make("p", {}, question), make("ul", { class: "votes" }, items));
  });
  return fold(plural(list.length, "answer") + " of the judge", false, blocks);
}
