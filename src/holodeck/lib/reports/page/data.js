// The results: compressed blocks of the document, decompressed when they are needed.

const MOST_BLOCKS = 8; // decompressed at a time
const page = { rows: [], starts: [] };
const blocks = new Map();
const keys = new Map();
const fresh = []; // lines of cases that ended after the page was opened

/** Return the text of a compressed block. */
async function decompress(node) {
  const data = Uint8Array.from(atob(node.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Read what the page is about, and a row for each case. */
async function readIndex() {
  const found = JSON.parse(await decompress(document.querySelector("[data-block=index]")));
  Object.assign(page, found, { rows: [] });
  addRows(found.rows);
}

/** Add rows, each with its place, its name, and the text that the search looks into. */
function addRows(rows) {
  for (const row of rows) {
    row.index = page.rows.length;
    row.last = row.outcome;
    row.title = row.name ?? row.id ?? row.input ?? `Case ${row.index + 1}`;
    row.group = [row.agent, row.suite].filter(Boolean).map((part) => part + " › ").join("");
    row.search = [row.group, row.title, row.id, row.reason, row.input, ...(row.tags ?? [])]
      .filter(Boolean)
      .join("\n")
      .toLowerCase();
    const key = row.id ?? row.group + row.title;
    const seen = (keys.get(key) ?? 0) + 1;
    keys.set(key, seen);
    row.key = seen === 1 ? key : `${key} (${seen})`;
    page.rows.push(row);
  }
}

/** Return the lines of a block of cases, one case a line. */
function linesOf(block) {
  if (!blocks.has(block)) {
    const node = document.querySelectorAll("[data-block=cases]")[block];
    blocks.set(block, decompress(node).then((text) => text.split("\n")));
    if (blocks.size > MOST_BLOCKS) blocks.delete(blocks.keys().next().value);
  }
  return blocks.get(block);
}

/** Return everything about a case. */
async function caseOf(row) {
  if (!page.starts.length) return parse(fresh[row.index]);
  const block = page.starts.findLastIndex((start) => start <= row.index);
  const lines = await linesOf(block);
  return parse(lines[row.index - page.starts[block]]);
}

/** Parse JSON; numbers that JavaScript cannot hold stay as they are written. */
function parse(text) {
  try {
    return JSON.parse(text, (key, value, context) =>
      typeof value === "number" && context?.source && loses(value, context.source)
        ? new Written(context.source)
        : value,
    );
  } catch (error) {
    if (error instanceof RangeError) return JSON.parse(text); // nested too deeply for the function
    throw error;
  }
}

function loses(value, source) {
  return !Number.isFinite(value) || (!Number.isSafeInteger(value) && /^-?\d+$/.test(source));
}

/** A number as it is written, such as an integer with more digits than JavaScript's numbers have. */
class Written {
  constructor(source) {
    this.source = source;
  }
}

/** Yield the rows whose results contain a text; blocks are read one after the other. */
async function* rowsWith(text) {
  const nodes = document.querySelectorAll("[data-block=cases]");
  const needle = JSON.stringify(text).slice(1, -1).toLowerCase();
  yield fresh.flatMap((line, place) => (line.toLowerCase().includes(needle) ? [place] : []));
  for (let block = 0; block < nodes.length; block += 1) {
    const lines = (await decompress(nodes[block])).split("\n");
    const start = page.starts[block];
    yield lines.flatMap((line, place) =>
      line.toLowerCase().includes(needle) ? [start + place] : [],
    );
  }
}
