// Sweeps that are no curve: over words, or over several keys; and the table of any sweep.

function drawSweptChoices(page, key) {
  const card = section(page, "valley", "Step time over " + shortName(key), null);
  const points = valleyPoints(page);
  rowChart(figure(card, "Step time", "mean, by " + shortName(key)), points.map((point) =>
    Object.assign({name: point.label, strong: point.best}, point)), {
    domain: [0, d3.max(points, (point) => point.ms) * 1.02],
    unit: "ms a step",
    label: valleySentence(points, referenceOf(page)),
    value: (point) => ms(point.ms),
    mark: (g, point, x) => barMark(g, x(0), x(point.ms), point.strong ? "chosen" : "baseline"),
  });
  sweepTable(card, page, [key]);
}

function barMark(g, from, to, name) {
  g.append("rect").attr("class", "bar-mark " + name).attr("height", 13).attr("rx", 2)
    .attr("x", Math.min(from, to)).attr("width", Math.max(1, Math.abs(to - from)));
}

/** Two keys or more: one line for each setting of the first ones over the values of the last. */
function drawGridOfSweep(page, keys) {
  const last = keys[keys.length - 1];
  const card = section(page, "valley", "The sweep",
    `Step time over ${shortName(last)}; each line is one setting of the other keys, the one that ` +
    "holds the best point is strong.");
  const {points, best} = page.data.result;
  const nameOf = (point) =>
    keys.slice(0, -1).map((key) => `${key} = ${point.values[key]}`).join(", ");
  const lines = d3.nest().key(nameOf).entries(points);
  const labels = [...new Set(points.map((point) => point.values[last]))];
  chart(figure(card, "Step time", "over " + shortName(last)), {height: 340,
    margin: {top: 26, left: 56, right: 20, bottom: 42},
    label: `Step time of ${points.length} points; least ${ms(points[best].step_ms)} at ` +
      `${shortName(nameOf(points[best]))}, ${shortName(last)} = ` +
      `${shortName(points[best].values[last])}.`}, (g, width, height) => {
    const x = d3.scalePoint(labels, [12, width - 12]);
    const y = d3.scaleLinear(airyDomain(points.map((point) => point.step_ms)), [height, 0]);
    axisLeft(g, y, width, "ms a step");
    g.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`)
      .call(d3.axisBottom(x).tickValues(apart(labels, x, 58))
        .tickFormat((label) => shortName(label, 12)));
    const curve = d3.line().x((point) => x(point.values[last])).y((point) => y(point.step_ms));
    const strong = nameOf(points[best]);
    for (const {key, values} of lines.sort((a, b) => (a.key === strong) - (b.key === strong))) {
      const line = g.append("g").attr("class", key === strong ? "line chosen" : "line baseline");
      line.append("path").attr("d", curve(values));
      line.selectAll("circle").data(values).join("circle").attr("r", 3.5)
        .attr("cx", (point) => x(point.values[last])).attr("cy", (point) => y(point.step_ms))
        .on("pointerenter", (point) => showTip([shortName(key), `${shortName(last)} = ` +
          shortName(point.values[last]), `${ms(point.step_ms)} a step`],
          d3.event.clientX, d3.event.clientY))
        .on("pointerleave", () => showTip(null));
    }
    markPoint(g, x(points[best].values[last]), y(points[best].step_ms), "best",
      `best: ${ms(points[best].step_ms)}`, width, height, 1);
  });
  sweepTable(card, page, keys);
}

function sweepTable(card, page, keys) {
  if (page.kind !== "sweep") {
    tableOf(card, "The valley as a table", [
      {name: "bucket size", text: true, value: (point) => shortName(point.label)},
      {name: "step ms", value: (point) => isNumber(point.ms) ? point.ms.toFixed(3) : "–"},
      {name: "", text: true, value: (point) => [point.default ? "default" : "",
        point.best ? "best" : ""].filter(Boolean).join(", ")},
    ], valleyPoints(page));
    return;
  }
  const {points, best} = page.data.result;
  const fastest = points[best].useful_tokens_per_s;
  tableOf(card, "The sweep as a table", [
    ...keys.map((key) => ({name: shortName(key), text: true,
      value: (point) => shortName(point.values[key])})),
    {name: "step ms", value: (point) => point.step_ms.toFixed(3)},
    {name: "against the best", value: (point) =>
      signedPercent(fastest / point.useful_tokens_per_s - 1)},
    {name: "useful tokens/s", value: (point) => count(point.useful_tokens_per_s)},
    {name: "buckets", value: (point) => count(point.buckets)},
    {name: "all-reduces ms", value: (point) => point.communication_ms.toFixed(3)},
    {name: "exposed ms", value: (point) => point.exposed_communication_ms.toFixed(3)},
    {name: "overlap", value: (point) => percent(point.overlap_fraction, 0)},
    {name: "memory GiB", value: (point) => (point.peak_memory_mib / 1024).toFixed(1)},
    {name: "", text: true, value: (point) => point === points[best] ? "best"
      : point.out_of_memory ? "out of memory" : ""},
  ], points);
}
