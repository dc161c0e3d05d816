// Says what became of the points of a search, and what was searched.

function drawSpace(page) {
  if (page.kind !== "tune") {
    return;
  }
  const {points, counts, certificate_words: certificate, space} = page.data.result;
  const card = section(page, "space", "How sure the search is", shortName(certificate, 400));
  const rows = counts.map(([number, words]) => ({name: words, number,
    strong: words.startsWith("predicted")}));
  const value = (row) => `${count(row.number)}, ${percent(row.number / points)}`;
  rowChart(figure(card, plural(points, "point"), "and what became of them"), rows, {
    domain: [0, points], unit: "points", format: d3.format("~s"),
    label: rows.map((row) => `${value(row)} ${shortName(row.name, 120)}`).join("; ") + ".",
    value,
    mark: (g, row, x) => barMark(g, x(0), x(row.number), row.strong ? "chosen" : "baseline"),
  });
  tableOf(card, "What was searched", [
    {name: "key", text: true, value: (axis) => shortName(axis.key)},
    {name: "values", text: true, value: (axis) => shortName(axis.values.join(", "), 400)},
  ], [{key: "policy", values: space.policies}, ...space.axes]);
}
