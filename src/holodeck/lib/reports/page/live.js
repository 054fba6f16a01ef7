// A run that goes on: asks the server that the page comes from for cases that have ended.

const PAUSE = 1000;

/** Follow the run until it ends. */
async function follow() {
  for (;;) {
    let found;
    try {
      const response = await fetch(`results?after=${page.rows.length}`);
      found = JSON.parse(await response.text());
    } catch {
      at("verdict").textContent = "not connected";
      await new Promise((resolve) => setTimeout(resolve, 2 * PAUSE));
      continue;
    }
    await addCases(found);
    if (found.is_last) return;
    if (!found.rows.length) await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

/** Add cases to the page; what the reader does meanwhile stays as it is. */
async function addCases({ page: about, rows, lines }) {
  const isFirst = page.rows.length === 0;
  Object.assign(page, { ...about, rows: page.rows });
  addRows(rows);
  fresh.push(...lines);
  showSummary();
  if (!rows.length && !isFirst) return;
  const focused = document.activeElement;
  const [id, chosen] = [focused?.id, focused?.dataset.state];
  makeControls();
  refresh();
  if (chosen) document.querySelector(`[data-state="${CSS.escape(chosen)}"]`)?.focus();
  else if (id?.startsWith("choose-")) at(id)?.focus();
  if (opened === null) await openAddressed();
}
