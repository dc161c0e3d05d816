// Draws what a rank holds over its step, where the prediction says so: FSDP2's units come and go.

/** What the parts of a memory curve are drawn as, from the ground up: [class, words, parts]. */
const memoryLayers = [
  ["other", "shards and optimizer", ["parameters", "sharded gradients", "optimizer", "fixed"]],
  ["data", "activations", ["activations", "logits", "copies of weights"]],
  ["forward", "gathered", ["gathered parameters", "slices of parameters", "gather buffers",
    "cast buffers"]],
  ["backward", "whole gradients", ["gradients", "unreduced gradients"]],
  ["transfer", "reductions", ["reduce-scatter inputs", "reduced gradients",
    "partly reduced gradients"]],
];

function drawMemory(page) {
  const prediction = ((page.data.result || {}).predictions || []).find((one) => one.memory_curve);
  if (!prediction) {
    return;
  }
  const curve = prediction.memory_curve;
  const points = curve.points.map((point, i) => {
    const sums = memoryLayers.map(([, , parts]) =>
      d3.sum(point.mib, (mib, part) => parts.includes(curve.parts[part]) ? mib : 0));
    return {...point, i, sums, total: d3.sum(point.mib)};
  });
  const card = section(page, "memory", "Memory over the step",
    `What rank ${curve.rank}, which needs most, holds in step ${curve.step}: in the order in ` +
    "which its host allocates and frees, and at the time when its device gets there.");
  legend(card, memoryLayers.map(([name, words]) => [name, words]));
  memoryChart(figure(card, "Memory", memoryWords(points[curve.peak], "peak")), points, curve.peak);
  tableOf(card, "The peak in figures", [
    {name: "held for", text: true, value: (row) => row.part},
    {name: "MiB", value: (row) => row.mib.toFixed(1)},
  ], curve.parts.map((part, i) => ({part, mib: points[curve.peak].mib[i]}))
    .filter((row) => row.mib > 0));
}

function memoryWords(point, what) {
  return `${what} ${bytes(point.total * 1024 ** 2)} at ${ms(point.ms)}: ${point.event}, in the ` +
    point.pass;
}

/** Draws layers over time, each point until the next one, and marks the peak. */
function memoryChart(box, points, peak) {
  const most = points[peak].total;
  const [unit, name] = most >= 2048 ? [1024, "GiB"] : [1, "MiB"];
  chart(box, {height: 274, margin: {top: 36, left: 52},
    label: `Memory over one step. ${memoryWords(points[peak], "Peak")}.`}, (g, width, height) => {
    const x = d3.scaleLinear([0, points[points.length - 1].ms], [0, width]);
    const y = d3.scaleLinear([0, most * 1.06 / unit], [height, 0]).nice(4);
    axisLeft(g, y, width, name);
    axisBelow(g, x, width, height, "ms of the step");
    memoryLayers.forEach(([layer], k) => {
      const below = (point) => d3.sum(point.sums.slice(0, k)) / unit;
      g.append("path").attr("class", layer).attr("d", d3.area().curve(d3.curveStepAfter)
        .x((point) => x(point.ms)).y0((point) => y(below(point)))
        .y1((point) => y(below(point) + point.sums[k] / unit))(points));
    });
    g.append("circle").attr("class", "memory-peak").attr("r", 4)
      .attr("cx", x(points[peak].ms)).attr("cy", y(most / unit));
    g.append("g").attr("class", "mark").append("text").attr("x", x(points[peak].ms))
      .attr("y", y(most / unit) - 9).attr("text-anchor", "middle").text("peak");
    const hair = g.append("line").attr("class", "hair").attr("y2", height);
    g.append("rect").attr("class", "catch").attr("width", width).attr("height", height)
      .on("pointermove", function () {
        const after = d3.bisector((point) => point.ms).right(points, x.invert(d3.mouse(this)[0]));
        const point = points[Math.max(0, after - 1)];
        g.classed("reading", true);
        hair.attr("x1", x(point.ms)).attr("x2", x(point.ms));
        showTip([memoryWords(point, "holds"), ...memoryLayers.map(([, words], k) =>
          `${words}: ${bytes(point.sums[k] * 1024 ** 2)}`)], d3.event.clientX, d3.event.clientY);
      })
      .on("pointerleave", () => {
        g.classed("reading", false);
        showTip(null);
      });
  });
}
