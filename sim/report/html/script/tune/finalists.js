// Draws the fastest settings of `stepsim tune`: their speed, and what the best one gains over each.

function drawFinalists(page) {
  const rows = (page.data.result.finalists || []).map((finalist, i) => ({
    name: finalist.setting,
    strong: i === 0,
    finalist,
    price: finalist.with_noise,
    remark: finalist.remark,
  }));
  if (page.kind !== "tune" || rows.length === 0) {
    return;
  }
  const noise = rows.every((row) => row.price.interval90_ms);
  const card = section(page, "finalists", "The fastest settings",
    noise ? "All are drawn with the same errors, so the gain of the first over another is surer " +
    "than their own intervals look." : "Without noise: the profile has no errors.");
  const grid = el("div", {class: noise && rows.length > 1 ? "pair" : null});
  card.append(grid);
  drawFinalistSpeeds(grid, rows);
  if (noise && rows.length > 1) {
    drawFinalistGains(grid, rows.slice(1));
  }
  finalistsTable(card, rows);
}

/** Returns useful tokens per second at both ends of the step's interval, the lower first. */
function speedEnds({price}) {
  const [low, high] = price.interval90_ms;
  return [high, low].map((time) => price.useful_tokens_per_step / time * 1000);
}

function drawFinalistSpeeds(grid, rows) {
  const noise = rows.every((row) => row.price.interval90_ms);
  const speed = (row) => row.price.useful_tokens_per_s;
  rowChart(figure(grid, "Useful tokens per second", noise
    ? "with what the 90 % interval of the step allows" : null), rows, {
    domain: [0, d3.max(rows, (row) => (noise ? speedEnds(row)[1] : speed(row)))],
    unit: "useful tokens/s", format: d3.format("~s"),
    label: "Useful tokens per second: " + rows.map((row) =>
      `${shortName(row.name, 120)}: ${count(speed(row))}, ${row.remark}`).join("; ") + ".",
    value: (row) => `${count(speed(row))}, ${row.remark}`,
    mark: (g, row, x) => {
      barMark(g, x(0), x(speed(row)), row.strong ? "chosen" : "baseline");
      if (noise) {
        intervalMark(g, ...speedEnds(row).map((end) => x(end)));
      }
    },
  });
}

function drawFinalistGains(grid, rows) {
  const gain = (row) => row.finalist.best_gain_interval90;
  const ends = rows.flatMap(gain).concat(0);
  rowChart(figure(grid, "Gain of the first over each", "90 % interval, draw by draw"), rows, {
    domain: d3.extent(ends),
    unit: "more useful tokens/s", format: d3.format("+.1%"),
    label: "Gain of the first, 90 % interval: " + rows.map((row) =>
      `over ${shortName(row.name, 120)} ${gain(row).map(signedPercent).join(" to ")}`).join("; ") + ".",
    value: (row) => gain(row).map(signedPercent).join(" to "),
    mark: (g, row, x) => {
      g.append("line").attr("class", "p95").attr("x1", x(0)).attr("x2", x(0))
        .attr("y1", -3).attr("y2", 16);
      intervalMark(g, ...gain(row).map((end) => x(end)));
    },
  });
}

function finalistsTable(card, rows) {
  tableOf(card, "The fastest settings as a table", [
    {name: "setting", text: true, value: (row) => shortName(row.name, 200)},
    {name: "step ms", value: (row) => row.price.step_ms.toFixed(3)},
    {name: "90 % interval", value: (row) => row.price.interval90_ms
      ? row.price.interval90_ms.map((end) => end.toFixed(3)).join(" – ") : "–"},
    {name: "useful tokens/s", value: (row) => count(row.price.useful_tokens_per_s)},
    {name: "the first is faster in", value: (row) => row.strong || !row.price.interval90_ms ? ""
      : percent(row.finalist.best_is_faster_share, 0) + " of draws"},
    {name: "samples a step", value: (row) => row.finalist.samples_per_step.toFixed(1)},
    {name: "memory", value: (row) => memoryText(row.price.peak_memory_mib)},
    {name: "order change", value: (row) => percent(row.finalist.order_change)},
    {name: "tokens left out", value: (row) => percent(row.finalist.tokens_left_out)},
    {name: "remark", text: true, value: (row) => row.remark},
  ], rows);
}
