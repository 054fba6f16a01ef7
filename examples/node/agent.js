// An agent in Node.js for holodeck: `holodeck test agent.yaml` in this folder.
// It speaks docs/reference/process-protocol.md; no package is needed.
"use strict";
const readline = require("node:readline");

const orders = { 7: "shipped", 8: "lost" };
const conversations = new Map();

console.log = console.error; // stdout belongs to the protocol

/** The agent: gets all messages of a conversation, the user's last. */
async function answer(messages) {
  const id = /order (\d+)/.exec(messages.at(-1).content)?.[1];
  if (id === undefined) return { response: "Which order?", tool_calls: [] };
  if (!(id in orders)) throw new RangeError(`there is no order ${id}`);
  const call = { name: "lookup_order", arguments: { id: Number(id) }, result: orders[id] };
  return {
    response: `Order ${id} is ${orders[id]}.`,
    tool_calls: [call],
    usage: { prompt_tokens: 20, completion_tokens: 6 },
    agents: ["orders"],
  };
}

const methods = {
  initialize: () => ({ protocol: 1, concurrency: 10, history: true, tools: ["lookup_order"] }),
  open: ({ conversation, messages }) => {
    conversations.set(conversation, [...messages]);
    return {};
  },
  send: async ({ conversation, message, messages = [] }) => {
    const all = conversations.get(conversation);
    all.push(...messages);
    const result = await answer([...all, { role: "user", content: message }]);
    all.push({ role: "user", content: message });
    all.push({ role: "assistant", content: result.response });
    return result;
  },
  close: ({ conversation }) => {
    conversations.delete(conversation);
    return {};
  },
};

function write(message) {
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
}

async function handle({ id, method, params }) {
  try {
    const call = methods[method];
    write({ id, result: await call(params) });
  } catch (error) {
    const [, file, line] = /\(?(\/[^()\s]+):(\d+):\d+\)?/.exec(error.stack) ?? [];
    const place = file === undefined ? {} : { file, line: Number(line) };
    write({ id, error: { code: -32000, message: error.message, data: { type: error.name, ...place } } });
  }
}

// The process ends when stdin does, because nothing keeps Node.js running then.
readline.createInterface({ input: process.stdin }).on("line", (line) => handle(JSON.parse(line)));
