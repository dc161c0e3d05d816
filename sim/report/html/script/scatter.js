// Plots predicted against measured: a point for each policy, and faint points for single steps.

function drawValidation(page) {
  if (page.kind !== "validate") {
    return;
  }
  const rows = page.data.result.policies || [];
  if (rows.length === 0) {
    return;
  }
  const card = section(page, "validation", "Predicted against measured",
    "A point on the diagonal is a perfect prediction. Upright lines are the predicted 90 % " +
    "interval, level ones how much the repeats of the live run differ; the band is their mean " +
    "along the diagonal. Errors smaller than that cannot be told from zero.");
  const grid = el("div", {class: "pair"});
  card.append(grid);
  drawScatter(figure(grid, "Mean step time", "of each policy"), page, rows);
  drawErrors(figure(grid, "Error of the mean", "beside two standard errors of the measurement"),
    page, rows);
  validationTables(card, rows);
}

function scatterSentence(rows) {
  return "Predicted against measured mean step time: " + rows.map((row) =>
    `${shortName(row.policy)} ${ms(row.predicted_ms.mean)} against ${ms(row.measured_ms.mean)}, ` +
    `${signedPercent(row.error.mean)}`).join("; ") + ".";
}

function drawScatter(box, page, rows) {
  const measured = (page.data.series || []).filter((series) => series.measured_ms);
  const singles = measured.flatMap((series) => steady(series, series.step_ms.map((predicted, i) =>
    [series.measured_ms[i], predicted]))).filter(([time]) => isNumber(time));
  const spread = d3.mean(rows, (row) => row.repeatability) || 0;
  const [low, high] = d3.extent(rows.flatMap((row) => [row.predicted_ms.mean,
    ...row.predicted_ms.interval90,
    row.measured_ms.mean * (1 - row.repeatability),
    row.measured_ms.mean * (1 + row.repeatability)]));
  const air = 0.25 * (high - low) + 0.03 * high;
  chart(box, {height: (width) => Math.min(440, Math.max(300, width * 0.85)),
    margin: {top: 22, left: 52, bottom: 40}, label: scatterSentence(rows)}, (g, width, height) => {
    const x = d3.scaleLinear([Math.max(0, low - air), high + air], [0, width]).nice(5);
    const y = d3.scaleLinear(x.domain(), [height, 0]);
    axisLeft(g, y, width, "predicted ms");
    axisBelow(g, x, width, height, "measured ms");
    g.append("clipPath").attr("id", "scatter-clip").append("rect").attr("width", width)
      .attr("height", height);
    const clip = g.append("g").attr("clip-path", "url(#scatter-clip)");
    const [from, to] = x.domain();
    const band = d3.area().x((at) => x(at)).y0((at) => y(at * (1 - spread)))
      .y1((at) => y(at * (1 + spread)));
    clip.append("path").attr("class", "band").attr("d", band([from, to]));
    clip.append("line").attr("class", "diagonal").attr("x1", x(from)).attr("y1", y(from))
      .attr("x2", x(to)).attr("y2", y(to));
    clip.append("g").attr("class", "singles").selectAll("circle").data(singles).join("circle")
      .attr("r", 2).attr("cx", ([time]) => x(time)).attr("cy", ([, predicted]) => y(predicted));
    const places = labelPlaces(rows.map((row) => y(row.predicted_ms.mean) + 12), 15, height - 6);
    rows.forEach((row, i) => drawScatterPoint(g, clip, row, places[i], x, y, width));
  });
}

/** Returns heights for labels, close to `wanted`, at least `pitch` apart and above `bottom`. */
function labelPlaces(wanted, pitch, bottom) {
  const order = d3.range(wanted.length).sort((a, b) => wanted[a] - wanted[b]);
  const places = [];
  order.reduce((least, i) => {
    places[i] = Math.max(least, wanted[i]);
    return places[i] + pitch;
  }, -Infinity);
  order.reverse().reduce((most, i) => {
    places[i] = Math.min(most, places[i]);
    return places[i] - pitch;
  }, bottom);
  return places;
}

/** Draws a point with its interval and repeatability, and its name to the right of the diagonal. */
function drawScatterPoint(g, clip, row, place, x, y, width) {
  const {mean} = row.measured_ms;
  const [left, top] = [x(mean), y(row.predicted_ms.mean)];
  const [low, high] = row.predicted_ms.interval90;
  clip.append("path").attr("class", "interval faint")
    .attr("d", `M${left},${y(low)}V${y(high)}M${x(mean * (1 - row.repeatability))},${top}` +
      `H${x(mean * (1 + row.repeatability))}`);
  const point = g.append("g").attr("class", "scatter-point");
  const name = shortName(row.policy, 24);
  const end = width - name.length * 6.9 - 8;
  point.append("path").attr("class", "leader")
    .attr("d", `M${left},${top}L${Math.max(left + 8, end)},${place - 4}`);
  point.append("circle").attr("class", "dot now").attr("r", 6).attr("cx", left).attr("cy", top);
  point.append("text").attr("x", width - 2).attr("y", place).attr("text-anchor", "end").text(name);
  point.on("pointermove", () => showTip([shortName(row.policy),
    `predicted ${ms(row.predicted_ms.mean)}, 90 % interval ${interval([low, high])}`,
    `measured ${ms(mean)}, ` + (row.repeats > 1
      ? `${plural(row.repeats, "repeat")} differ by ±${percent(row.repeatability)}` : "one run"),
    `error ${signedPercent(row.error.mean)}`], d3.event.clientX, d3.event.clientY))
    .on("pointerleave", () => showTip(null));
}

/** Draws errors as bars from zero, with the measurement's resolution as a band, and the bound. */
function drawErrors(box, page, rows) {
  const {bound} = page.data.result;
  const resolution = (row) => isNumber(row.standard_error) ? 2 * row.standard_error : 0;
  const reach = 1.08 * Math.max(bound || 0, d3.max(rows, (row) =>
    Math.max(Math.abs(row.error.mean), resolution(row))));
  rowChart(box, rows.map((row) => Object.assign({name: row.policy}, row)), {
    domain: [-reach, reach], unit: "predicted minus measured", format: d3.format("+.0%"),
    label: "Error of the mean: " + rows.map((row) => `${shortName(row.policy)} ` +
      `${signedPercent(row.error.mean)}, ${resolutionWords(row, "two standard errors ")}`)
      .join("; ") + ".",
    value: (row) => `${signedPercent(row.error.mean)}${isNumber(row.standard_error) ? " " : ", "}` +
      resolutionWords(row, ""),
    mark: (g, row, x) => {
      g.append("rect").attr("class", "band").attr("x", x(-resolution(row))).attr("height", 13)
        .attr("width", x(resolution(row)) - x(-resolution(row)));
      barMark(g, x(0), x(row.error.mean), !isNumber(row.standard_error) ? "reference-case"
        : Math.abs(row.error.mean) > resolution(row) ? "chosen" : "baseline");
      for (const limit of isNumber(bound) ? [-bound, bound] : []) {
        g.append("line").attr("class", "p95").attr("x1", x(limit)).attr("x2", x(limit))
          .attr("y1", 0).attr("y2", 15);
      }
    },
  });
  const told = rows.some((row) => isNumber(row.standard_error));
  const untold = rows.some((row) => !isNumber(row.standard_error));
  legend(box, [...(told ? [["chosen", "real"], ["baseline", "within what the measurement can tell"],
    ["band", "two standard errors"]] : []),
  ...(untold ? [["reference-case", "one run: not known how well it repeats"]] : [])]);
}

/** What the measurement of a policy can tell, "±1.2 %"; one run does not show how it repeats. */
function resolutionWords(row, before) {
  return isNumber(row.standard_error) ? `${before}±${percent(2 * row.standard_error)}` : "one run";
}

function validationTables(card, rows) {
  const name = {name: "policy", text: true, value: (row) => shortName(row.policy)};
  tableOf(card, "Predicted and measured as a table", [
    name,
    {name: "predicted ms", value: (row) => row.predicted_ms.mean.toFixed(3)},
    {name: "90 % interval", value: (row) =>
      row.predicted_ms.interval90.map((value) => value.toFixed(3)).join(" – ")},
    {name: "measured ms", value: (row) => row.measured_ms.mean.toFixed(3)},
    {name: "error", value: (row) => signedPercent(row.error.mean)},
    {name: "p50 error", value: (row) => signedPercent(row.error.p50)},
    {name: "p95 error", value: (row) => signedPercent(row.error.p95)},
    {name: "per-step error", value: (row) => percent(row.error.per_step)},
    {name: "repeatability", value: (row) => row.repeats > 1 ? "±" + percent(row.repeatability)
      : "one run"},
    {name: "2 std errors", value: (row) => isNumber(row.standard_error)
      ? "±" + percent(2 * row.standard_error) : "one run"},
    {name: "in interval", text: true, value: (row) => row.in_interval ? "yes" : "no"},
  ], rows);
  const points = (value) =>
    isNumber(value) ? (value < 0 ? "" : "+") + (value * 100).toFixed(1) : "–";
  tableOf(card, "Where the error is, in points of the measured step", [
    name,
    {name: "error", value: (row) => points(row.error.mean)},
    ...["data", "forward", "backward", "exposed", "optimizer", "other"].map((part) =>
      ({name: part, value: (row) => points((row.error.mean_by_part || {})[part])})),
  ], rows);
}
