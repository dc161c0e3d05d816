// Draws what training costs on each cluster of a sweep: throughput against throughput a rank.

function drawTrainingCost(page) {
  const {training} = page.data.result;
  if (page.kind !== "sweep" || !training) {
    return;
  }
  const keys = sweptKeys(page);
  const rows = training.points.map((point, i) => Object.assign({
    name: valueLabels(page, page.data.result.points[i]).join(", ")}, point))
    .filter((row) => row.samples_per_s > 0);
  const card = section(page, "training", "Which cluster is worth it?",
    "To the right is faster, upwards is cheaper. No other cluster is both for those on the line; " +
    "level lines are the 90 % interval of the step. " + worthSentence(training));
  drawFrontier(figure(card, "samples/s of a rank", "over samples/s of the cluster"), training,
    rows);
  trainingCostTable(card, training, keys.map((key) => shortName(key)).join(", "), rows);
}

function worthSentence({goal, largest_worth: worth}) {
  const wanted = `an efficiency of ${percent(goal.efficiency, 0)}`;
  return worth ? `The largest cluster with ${wanted} is ${shortName(worth, 120)}.`
    : `No cluster has ${wanted}.`;
}

function drawFrontier(box, training, rows) {
  const frontier = rows.filter((row) => row.efficient)
    .sort((a, b) => a.samples_per_s - b.samples_per_s);
  const best = d3.max(rows, (row) => row.samples_per_s_per_rank);
  chart(box, {height: (width) => width < 520 ? 300 : 340,
    margin: {top: 26, left: 56, right: 20, bottom: 42},
    label: "Samples per second of a cluster and of each rank: " + rows.map((row) =>
      `${shortName(row.name)} ${row.samples_per_s.toFixed(1)} and ` +
      row.samples_per_s_per_rank.toFixed(2)).join("; ") + "."},
  (g, width, height) => {
    const x = d3.scaleLinear([0, d3.max(rows, (row) => row.samples_per_s_interval90[1]) * 1.05],
      [0, width]);
    const y = d3.scaleLinear([0, best * 1.1], [height, 0]);
    axisLeft(g, y, width, "samples/s a rank");
    axisBelow(g, x, width, height, "samples/s");
    const worth = y(training.goal.efficiency * best);
    g.append("line").attr("class", "diagonal").attr("x1", 0).attr("x2", width)
      .attr("y1", worth).attr("y2", worth);
    g.append("text").attr("class", "axis-title").attr("x", width).attr("y", worth - 5)
      .attr("text-anchor", "end").text(`${percent(training.goal.efficiency, 0)} of the best`);
    g.append("g").attr("class", "line chosen").append("path").attr("d",
      d3.line().x((row) => x(row.samples_per_s)).y((row) => y(row.samples_per_s_per_rank))(frontier));
    const taken = rows.map((row) => around(x(row.samples_per_s), y(row.samples_per_s_per_rank)));
    for (const row of rows) {
      drawCluster(g, row, x, y);
    }
    for (const row of rows) {
      nameCluster(g, row, x(row.samples_per_s), y(row.samples_per_s_per_rank), width, taken);
    }
  });
}

/** The box of a point. */
function around(left, top) {
  return {left: left - 6, right: left + 6, top: top - 6, bottom: top + 6};
}

/** Writes a cluster's name beside its point, at the first of four places where nothing is yet; a
 *  name without such a place is left to the tip and the table. */
function nameCluster(g, row, left, top, width, taken) {
  const text = g.append("text").attr("class", "cluster-name").text(shortName(row.name, 20));
  for (const [side, down] of [[1, -8], [-1, -8], [1, 17], [-1, 17]]) {
    text.attr("x", left + 9 * side).attr("y", top + down)
      .attr("text-anchor", side > 0 ? "start" : "end");
    const box = text.node().getBBox();
    const own = {left: box.x, right: box.x + box.width, top: box.y, bottom: box.y + box.height};
    const isFree = own.left >= 0 && own.right <= width && taken.every((other) =>
      own.right <= other.left || own.left >= other.right ||
      own.bottom <= other.top || own.top >= other.bottom);
    if (isFree) {
      taken.push(own);
      return;
    }
  }
  text.remove();
}

function drawCluster(g, row, x, y) {
  const [left, top] = [x(row.samples_per_s), y(row.samples_per_s_per_rank)];
  const [low, high] = row.samples_per_s_interval90;
  const point = g.append("g").attr("class", "scatter-point");
  point.append("path").attr("class", "interval faint").attr("d", `M${x(low)},${top}H${x(high)}`);
  point.append("circle").attr("class", row.efficient ? "dot now" : "dot").attr("r", 5)
    .attr("cx", left).attr("cy", top);
  point.on("pointermove", () => showTip([shortName(row.name), plural(row.ranks, "rank"),
    `${row.samples_per_s.toFixed(1)} samples/s, 90 % interval ${low.toFixed(1)} to ` +
    high.toFixed(1), `${row.samples_per_s_per_rank.toFixed(2)} samples/s a rank, efficiency ` +
    percent(row.efficiency, 0)], d3.event.clientX, d3.event.clientY))
    .on("pointerleave", () => showTip(null));
}

function trainingCostTable(card, training, title, rows) {
  const number = (value) => isNumber(value) ? value.toFixed(1) : "–";
  const goal = training.goal.samples !== null || training.goal.tokens !== null;
  tableOf(card, "What training costs as a table", [
    {name: title, text: true, value: (row) => shortName(row.name)},
    {name: "ranks", value: (row) => count(row.ranks)},
    {name: "samples/s", value: (row) => row.samples_per_s.toFixed(1)},
    {name: "90 % interval", value: (row) =>
      row.samples_per_s_interval90.map((end) => end.toFixed(1)).join(" – ")},
    {name: "a rank", value: (row) => row.samples_per_s_per_rank.toFixed(2)},
    {name: "efficiency", value: (row) => percent(row.efficiency, 0)},
    ...(goal ? [{name: "hours", value: (row) => number(row.hours)},
      {name: "GPU-hours", value: (row) => number(row.rank_hours)}] : []),
    ...(goal && training.goal.price_per_rank_hour !== null
      ? [{name: "cost", value: (row) => number(row.money)}] : []),
    {name: "frontier", text: true, value: (row) => row.efficient ? "efficient" : ""},
  ], rows);
}
