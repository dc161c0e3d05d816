// Shows all steps in order: step time, how unequal the ranks are, memory, and the distribution.

/** Returns the population standard deviation over the ranks, by step. */
function stdOverRanks(ranks) {
  return ranks[0].map((first, step) => {
    const values = ranks.map((rank) => rank[step]);
    const mean = d3.mean(values);
    return Math.sqrt(d3.mean(values, (value) => (value - mean) ** 2));
  });
}

function seriesLines(pair, valuesOf) {
  return pair
    .map(({series, role}) => ({name: series.policy, role, series, values: valuesOf(series)}))
    .filter((line) => line.values && line.values.length > 0);
}

function drawSeries(page) {
  const pairing = page.pairing;
  if (pairing.series.length === 0) {
    return;
  }
  const two = pairing.usual >= 0;
  const card = section(page, "series", "Step after step",
    "Every step waits for its slowest rank: the more unequal the ranks, the longer and the more " +
    "uneven the steps. Predicted without noise; the shaded steps, the warm-up, count nowhere.");
  if (two) {
    drawPairing(card, pairing);
  }
  const keys = el("div");
  const grid = el("div", {class: "pair"});
  card.append(keys, grid);
  const update = () => {
    const pair = pairing.pair();
    keys.replaceChildren();
    grid.replaceChildren();
    seriesLegend(keys, pair);
    drawSeriesCharts(grid, pair);
  };
  update();
  pairing.onChange(update);
  seriesTable(card, page, pairing.series);
}

function seriesLegend(box, pair) {
  const entries = pair.map(({series, role}) => ["line-" + role, shortName(series.policy)]);
  if (pair.some(({series}) => series.measured_ms)) {
    pair.forEach(({series, role}) => entries.push(["line-measured-" + role,
      shortName(series.policy) + ", measured"]));
  }
  legend(box, entries);
}

function drawSeriesCharts(grid, pair) {
  const times = seriesLines(pair, (series) => series.step_ms);
  const measured = seriesLines(pair, (series) => series.measured_ms)
    .map((line) =>
      Object.assign(line, {role: "measured-" + line.role, name: line.name + ", measured"}));
  stepChart(figure(grid, "Step time", "of every step"), times.concat(measured), "ms", ms);
  drawNewShapes(grid, pair);
  const spread = seriesLines(pair, (series) => series.padded && stdOverRanks(series.padded));
  if (spread.some((line) => d3.max(line.values) > 0)) {
    stepChart(figure(grid, "Unequal ranks", "standard deviation of padded tokens over the ranks"),
      spread, "tokens", (value) => value.toFixed(1) + " tokens");
  }
  const memory = seriesLines(pair, (series) => series.memory_bytes);
  if (memory.length > 0) {
    const most = d3.max(memory, (line) => d3.max(line.values));
    const unit = most >= 2 * 1024 ** 3 ? 1024 ** 3 : 1024 ** 2;
    memory.forEach((line) => {
      line.values = line.values.map((value) => value / unit);
    });
    stepChart(figure(grid, "Memory", "of the rank that needs most"), memory,
      unit === 1024 ** 3 ? "GiB" : "MiB", (value) => bytes(value * unit));
  }
  if (d3.min(times, (line) => steady(line.series, line.values).length) >= 8) {
    histogram(figure(grid, "Distribution",
      "of the step times after the warm-up; lines mark the means"), times);
  }
}

/** Draws what first meetings of shapes cost, where they cost anything. */
function drawNewShapes(grid, pair) {
  const lost = seriesLines(pair, (series) => series.lost_ms && cumulated(series.lost_ms));
  if (lost.length === 0) {
    return;
  }
  stepChart(figure(grid, "Lost to new shapes",
    "seconds from the first step on; marks under the step times are steps with a new shape"),
  lost, "s", (value) => value.toFixed(3) + " s");
  stepChart(figure(grid, "Distinct shapes", "(samples, padded length) that some rank has met"),
    seriesLines(pair, (series) => series.shapes), "shapes", (value) => plural(value, "shape"));
}

/** Returns the sums of milliseconds from the first step on, in seconds. */
function cumulated(values) {
  let sum = 0;
  return values.map((value) => (sum += value) / 1e3);
}

function linesSentence(lines, unit) {
  return lines.map((line) => {
    const kept = steady(line.series, line.values);
    return `${shortName(line.name)}: mean ${msDigits(d3.mean(kept))} ${unit}, from ` +
      `${msDigits(d3.min(kept))} to ${msDigits(d3.max(kept))} in ${plural(kept.length, "step")}`;
  }).join("; ") + ".";
}

/** Draws lines over the steps, with a cross-hair that reads their values. */
function stepChart(box, lines, unit, format) {
  const steps = d3.max(lines, (line) => line.values.length);
  chart(box, {height: 230, margin: {top: 22, left: 52},
    label: `By step, in ${unit}. ` + linesSentence(lines, unit)}, (g, width, height) => {
    const x = d3.scaleLinear([0, Math.max(1, steps - 1)], [0, width]);
    const y = d3.scaleLinear(airyDomain(lines.flatMap((line) => line.values)), [height, 0]).nice(4);
    const warmup = d3.max(lines, (line) => line.series.warmup_steps || 0);
    if (warmup > 0) {
      g.append("rect").attr("class", "warmup").attr("width", x(Math.min(warmup, steps - 1) - 0.5))
        .attr("height", height);
    }
    axisLeft(g, y, width, unit);
    axisBelow(g, x, width, height, "step", Math.max(1, Math.min(steps - 1, Math.floor(width / 60))),
      d3.format("d"));
    const curve = d3.line().defined(isNumber).x((value, i) => x(i)).y((value) => y(value));
    for (const line of lines) {
      const drawn = g.append("g").attr("class", "line " + line.role);
      drawn.append("path").attr("d", curve(line.values));
      markNewShapes(drawn, line, unit, x, height);
      if (steps <= 60) {
        drawn.selectAll("circle").data(d3.range(line.values.length))
          .join("circle").filter((i) => isNumber(line.values[i])).attr("r", 2.4)
          .attr("cx", (i) => x(i)).attr("cy", (i) => y(line.values[i]));
      }
    }
    const value = (line, step) => isNumber(line.values[step]) ? format(line.values[step]) : "–";
    crossHair(g, width, height, x, steps, (step) => [`Step ${step}`,
      ...lines.map((line) => `${shortName(line.name, 32)}: ${value(line, step)}`)]);
  });
}

/** Marks the steps of a line of step times in which some rank met a new shape. */
function markNewShapes(drawn, line, unit, x, height) {
  const lost = unit === "ms" && !line.role.startsWith("measured") && line.series.lost_ms || [];
  const rank = line.role === "chosen" ? 0 : 1;
  drawn.selectAll("line.met").data(d3.range(lost.length).filter((i) => lost[i] > 0))
    .join("line").attr("class", "met").attr("x1", (i) => x(i)).attr("x2", (i) => x(i))
    .attr("y1", height - 6 * rank).attr("y2", height - 6 * rank - 5);
}

function crossHair(g, width, height, x, steps, words) {
  const hair = g.append("line").attr("class", "hair").attr("y2", height);
  g.append("rect").attr("class", "catch").attr("width", width).attr("height", height)
    .on("pointermove", function () {
      const step = Math.max(0, Math.min(steps - 1, Math.round(x.invert(d3.mouse(this)[0]))));
      g.classed("reading", true);
      hair.attr("x1", x(step)).attr("x2", x(step));
      showTip(words(step), d3.event.clientX, d3.event.clientY);
    })
    .on("pointerleave", () => {
      g.classed("reading", false);
      showTip(null);
    });
}

/** Draws how many steps took how long, one outline per policy over common bins. */
function histogram(box, lines) {
  const kept = lines.map((line) => steady(line.series, line.values));
  const all = kept.flat();
  const [low, high] = d3.extent(all);
  const air = Math.max((high - low) * 0.05, high * 0.002);
  chart(box, {height: 230, margin: {top: 22, left: 52},
    label: "Distribution of step times. " + linesSentence(lines, "ms")}, (g, width, height) => {
    const x = d3.scaleLinear([low - air, high + air], [0, width]);
    const bins = d3.histogram().domain(x.domain())
      .thresholds(x.ticks(Math.max(8, Math.min(40, Math.ceil(Math.sqrt(all.length) * 1.6)))));
    const counts = kept.map((values) => bins(values));
    const y = d3.scaleLinear([0, d3.max(counts.flat(), (bin) => bin.length)], [height, 0]).nice(4);
    axisLeft(g, y, width, "steps", d3.format("d"));
    axisBelow(g, x, width, height, "ms a step", Math.floor(width / 70));
    counts.forEach((list, i) => {
      const corners = list.flatMap((bin) => [[bin.x0, bin.length], [bin.x1, bin.length]]);
      const outline = [[x.domain()[0], 0], ...corners, [x.domain()[1], 0]];
      g.append("path").attr("class", "outline " + lines[i].role)
        .attr("d", d3.line().x((at) => x(at[0])).y((at) => y(at[1]))(outline));
      const mean = d3.mean(kept[i]);
      g.append("line").attr("class", "mean " + lines[i].role)
        .attr("x1", x(mean)).attr("x2", x(mean)).attr("y1", -4).attr("y2", height);
    });
  });
}

/** Returns the time that a share of the ascending times does not exceed, by the rule of the summary. */
function stepQuantile(times, share) {
  const place = share * times.length;
  const whole = Math.round(place);
  const at = (i) => times[Math.min(Math.max(i, 0), times.length - 1)];
  return Math.abs(place - whole) < 1e-9 * times.length
    ? at(whole - 1) + (1 - share) * (at(whole) - at(whole - 1)) : at(Math.floor(place));
}

function seriesTable(card, page, all) {
  const rows = all.map((series) => {
    const kept = steady(series, series.step_ms).slice().sort(d3.ascending);
    return {series, kept, std: series.padded && series.padded.length > 1
      ? d3.mean(steady(series, stdOverRanks(series.padded))) : null};
  });
  const fixed = (value, digits = 3) => isNumber(value) ? value.toFixed(digits) : "–";
  tableOf(card, "The steps in figures", [
    {name: "policy", text: true, value: (row) => shortName(row.series.policy)},
    {name: "mean ms", value: (row) => fixed(d3.mean(row.kept))},
    {name: "median ms", value: (row) => fixed(stepQuantile(row.kept, 0.5))},
    {name: "p95 ms", value: (row) => fixed(stepQuantile(row.kept, 0.95))},
    {name: "longest ms", value: (row) => fixed(d3.max(row.kept))},
    {name: "std of padded tokens over ranks", value: (row) => fixed(row.std, 1)},
    {name: "most memory", value: (row) => bytes(d3.max(row.series.memory_bytes || [NaN]))},
  ], rows);
  const steps = d3.max(all, (series) => series.step_ms.length);
  tableOf(card, "Every step as a table", [
    {name: "step", value: (step) => step},
    ...all.flatMap((series) => [
      {name: shortName(series.policy, 24) + " ms", value: (step) => fixed(series.step_ms[step])},
      ...(series.measured_ms ? [{name: "measured ms",
        value: (step) => fixed(series.measured_ms[step])}] : []),
    ]),
  ], d3.range(steps));
}
