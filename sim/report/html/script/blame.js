// Shows what a step would save if one thing were different.

function drawBlame(page) {
  for (const blame of page.data.blame || []) {
    drawBlameOf(page, blame);
  }
}

function drawBlameOf(page, blame) {
  const rows = blame.rows.map(([name, saved, why]) => ({name, saved, why}));
  const priced = rows.filter((row) => isNumber(row.saved));
  if (priced.length === 0) {
    return;
  }
  const card = section(page, "blame", "What would save most",
    `What a step of ${ms(blame.step_ms)} (policy ${shortName(blame.policy)}, without noise) ` +
    "would save if one thing were different. Savings overlap, so they do not add up.");
  // Changes that save less than the last digit shown, or cost time, are in the table only.
  const saving = priced.filter((row) => row.saved >= 5e-4 * blame.step_ms);
  saving.sort((a, b) => b.saved - a.saved);
  if (saving.length === 0) {
    card.append(el("p",
      {text: "No single change would save as much as 0.05 %: the step is compute."}));
  } else {
    drawSavings(card, blame, saving.map((row, i) => Object.assign({strong: i === 0}, row)),
      priced.length - saving.length);
  }
  tableOf(card, "What would save most, as a table", [
    {name: "the step, if", text: true, value: (row) => shortName(row.name, 100)},
    {name: "saves ms", value: (row) => isNumber(row.saved) ? row.saved.toFixed(3) : "–"},
    {name: "of the step", value: (row) =>
      isNumber(row.saved) ? signedPercent(row.saved / blame.step_ms) : "–"},
    {name: "remark", text: true, value: (row) => row.why ? "not priced: " + shortName(row.why, 200) : ""},
  ], rows);
}

function drawSavings(card, blame, rows, others) {
  rowChart(figure(card, "Saved", "per step, if …" + (others > 0
    ? ` (${plural(others, "change")} that would save nothing: see the table)` : "")), rows, {
    domain: [0, Math.max(rows[0].saved * 1.02, 0.02 * blame.step_ms)],
    unit: "ms saved",
    label: "Saved per step: " + rows.map((row) =>
      `${shortName(row.name, 100)}: ${ms(row.saved)}`).join("; ") + ".",
    value: (row) => `${ms(row.saved)}, ${percent(row.saved / blame.step_ms)}`,
    mark: (g, row, x) => barMark(g, x(0), x(row.saved), row.strong ? "chosen" : "baseline"),
  });
}
