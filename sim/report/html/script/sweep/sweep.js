// Draws sweeps that are not a curve, over words or over several keys, and the table of any sweep.

function drawSweptChoices(page, key) {
  const measure = measureOf(page);
  const card = section(page, "valley", `${measure.name} over ${shortName(key)}`, null);
  const points = sweepPoints(page);
  rowChart(figure(card, measure.name, "by " + shortName(key)), points.map((point) =>
    Object.assign({name: point.label + (point.misfit ? ", out of memory" : ""),
      strong: point.best}, point)), {
    domain: [0, d3.max(points, (point) => point.y) * 1.02],
    unit: measure.unit,
    label: sweepSentence(page),
    value: (point) => measure.short(point.y),
    mark: (g, point, x) => barMark(g, x(0), x(point.y), point.misfit ? "misfit"
      : point.strong ? "chosen" : "baseline"),
  });
  sweepTable(card, page, [key]);
}

function barMark(g, from, to, name) {
  g.append("rect").attr("class", "bar-mark " + name).attr("height", 13).attr("rx", 2)
    .attr("x", Math.min(from, to)).attr("width", Math.max(1, Math.abs(to - from)));
}

/** Draws a sweep of several keys: a line over the last key for each setting of the others. */
function drawGridOfSweep(page, keys) {
  const measure = measureOf(page);
  const last = keys[keys.length - 1];
  const {points, best} = page.data.result;
  const rows = points.map((point) => {
    const labels = valueLabels(page, point);
    return {line: keys.slice(0, -1).map((key, i) => `${key} = ${labels[i]}`).join(", "),
      label: labels[keys.length - 1], y: valueOf(point, measure),
      misfit: Boolean(point.out_of_memory), refused: point.refused};
  });
  const strong = rows[best];
  const card = section(page, "valley", "The sweep",
    `${measure.name} over ${shortName(last)}; each line is one setting of the other keys` +
    (strong.misfit ? ". No point fits into memory."
      : `, the one with the best point is emphasised: ${shortName(strong.line, 120)}.`) +
    (rows.some((row) => row.misfit) ? " Red points are out of memory." : ""));
  chart(figure(card, measure.name, "over " + shortName(last)), {height: 340,
    margin: {top: 26, left: 56, right: 20, bottom: 42},
    label: `${measure.name} of ${points.length} points; ${bestWord(page)} ${measure.short(strong.y)} at ` +
      `${shortName(strong.line)}, ${shortName(last)} = ${shortName(strong.label)}.`},
  (g, width, height) => drawLines(g, width, height, rows.filter((row) => !row.refused), strong,
    measure));
  sweepTable(card, page, keys);
}

function drawLines(g, width, height, rows, strong, measure) {
  const labels = [...new Set(rows.map((row) => row.label))];
  const x = d3.scalePoint(labels, [12, width - 12]);
  const y = d3.scaleLinear(airyDomain(rows.map((row) => row.y)), [height - 24, 0]);
  axisLeft(g, y, width, measure.unit, measure.tick);
  g.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`)
    .call(d3.axisBottom(x).tickValues(apart(labels, x, 58))
      .tickFormat((label) => shortName(label, 12)));
  const curve = d3.line().x((row) => x(row.label)).y((row) => y(row.y));
  const lines = d3.nest().key((row) => row.line).entries(rows);
  lines.sort((a, b) => (a.key === strong.line) - (b.key === strong.line));
  for (const {key, values} of lines) {
    const line = g.append("g")
      .attr("class", key === strong.line ? "line chosen" : "line baseline");
    line.append("path").attr("d", curve(values));
    line.selectAll("circle").data(values).join("circle").attr("r", 4)
      .attr("class", (row) => row.misfit ? "misfit" : null)
      .attr("cx", (row) => x(row.label)).attr("cy", (row) => y(row.y))
      .on("pointerenter", (row) => showTip([shortName(row.label), shortName(key),
        measure.words(row.y), ...(row.misfit ? ["out of memory"] : [])], d3.event.clientX, d3.event.clientY))
      .on("pointerleave", () => showTip(null));
  }
  if (!strong.misfit) {
    markPoint(g, x(strong.label), y(strong.y), "best",
      `${bestWord(page)}: ${measure.short(strong.y)}`, width, height, 1);
  }
}

function sweepTable(card, page, keys) {
  if (page.kind !== "sweep") {
    tableOf(card, "The bucket sizes as a table", [
      {name: "bucket size", text: true, value: (point) => shortName(point.label)},
      {name: "step ms", value: (point) => isNumber(point.y) ? point.y.toFixed(3) : "–"},
      {name: "remark", text: true, value: (point) => [point.default ? "default" : "",
        point.best ? "best" : ""].filter(Boolean).join(", ")},
    ], sweepPoints(page));
    return;
  }
  tableOf(card, "The sweep as a table", [
    ...keys.map((key, i) => ({name: shortName(key), text: true,
      value: (point) => shortName(valueLabels(page, point)[i])})),
    ...page.data.sweep_columns.map(({key, heading, format}) => ({name: heading, text: !format,
      value: (point) => point.refused && key !== "remark" ? "–"
        : format ? figureFormats[format](point[key])
          : shortName(point.refused ? `refused: ${point.refused}` : point[key], 200)})),
  ], page.data.result.points);
}
