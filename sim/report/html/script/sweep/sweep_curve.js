// Draws step time over the bucket size, or over whatever a sweep varies.

function drawSweepCurve(page) {
  const keys = sweptKeys(page);
  if (keys.length > 1) {
    drawGridOfSweep(page, keys);
    return;
  }
  if (!sweepPoints(page).some((point, i, all) => all.length > 2 && point.x > 0)) {
    if (keys.length === 1) {
      drawSweptChoices(page, keys[0]);
    }
    return;
  }
  const cap = keys.length === 0 || keys[0] === "ddp.bucket_cap";
  if (keys.length === 0 && areEqual(sweepTimelines(page))) {
    drawEqualSizes(page);
    return;
  }
  const measure = measureOf(page);
  const over = cap ? "over the bucket size" : "over " + shortName(keys[0]);
  const card = section(page, "valley", `${measure.name} ${over}`,
    cap ? "Small buckets pay for every message; large ones leave nothing to overlap with. " +
      "Click on a point to move the timeline there." : null);
  const again = chart(figure(card, measure.name, over + axisStart(page)), {height: (width) => width < 520 ? 300 : 340,
    margin: {top: 26, left: 56, bottom: 42},
    label: () => sweepSentence(page)},
    (g, width, height) => drawCurve(g, width, height, page));
  if (page.selection) {
    page.selection.onChange(again);
  }
  const has = (member) => sweepPoints(page).some(member);
  const entries = [["line-curve", measure.name.toLowerCase()],
    ...(has((point) => isNumber(point.exposed)) ? [["exposed", "of which exposed communication"]] : []),
    ...(has((point) => point.band) ? [["band", "90 % interval"]] : []),
    ...(has((point) => point.misfit) ? [["misfit", "out of memory"]] : [])];
  if (entries.length > 1) {
    legend(card, entries);
  }
  if (has((point) => point.band)) {
    card.append(el("p", {class: "hint", text: "The band is the 90 % interval of each point by itself. Most of what " +
      "may be off is off for all points alike: how they differ is surer than the band is wide."}));
  } else {
    drawIntervalNote(card, page);
  }
  drawMemoryCurve(card, page, over);
  sweepTable(card, page, keys);
}

/** Draws the peak of a rank below the card's limit, where both are known. */
function drawMemoryCurve(card, page, over) {
  const points = sweepPoints(page).filter((point) => point.x > 0 && point.memory > 0);
  const limit = memoryCapacity(page);
  if (points.length < 3 || !limit) {
    return;
  }
  const gib = (mib) => mib / 1024;
  const most = d3.max(points, (point) => point.memory);
  const words = `${bytes(d3.min(points, (point) => point.memory) * 1024 ** 2)} to ` +
    `${bytes(most * 1024 ** 2)} of the card's ${bytes(limit * 1024 ** 2)}`;
  chart(figure(card, "Memory of a rank at its peak", over), {height: 190,
    margin: {top: 26, left: 56, bottom: 42}, label: `Memory: ${words}.`}, (g, width, height) => {
    const x = d3.scaleLog(d3.extent(points, (point) => point.x), [12, width - 12]);
    const y = d3.scaleLinear([0, gib(Math.max(limit, most)) * 1.12], [height, 0]);
    axisLeft(g, y, width, "GiB");
    axisOfPoints(g, x, height, points);
    markLevel(g, y(gib(limit)), width, `the card's limit: ${bytes(limit * 1024 ** 2)}`);
    g.append("path").attr("class", "curve").attr("d", d3.line().x((point) => x(point.x))
      .y((point) => y(gib(point.memory)))(points));
    g.selectAll("circle").data(points).join("circle").attr("r", 4)
      .attr("class", (point) => point.misfit ? "dot misfit" : "dot")
      .attr("cx", (point) => x(point.x)).attr("cy", (point) => y(gib(point.memory)))
      .on("pointerenter", (point) => showTip([shortName(point.label),
        bytes(point.memory * 1024 ** 2), ...(point.misfit ? ["out of memory"] : [])],
      d3.event.clientX, d3.event.clientY))
      .on("pointerleave", () => showTip(null));
  });
}

/** Draws the axis of the swept values, with as many of their labels as fit. */
function axisOfPoints(g, x, height, points) {
  g.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`)
    .call(d3.axisBottom(x)
      .tickValues(apart(points.map((point) => point.x), (at) => x(at), 58))
      .tickFormat((at) => shortName(points.find((point) => point.x === at).label, 12)));
}

/** States the interval of the scenario as it stands, since the points are means without noise. */
function drawIntervalNote(card, page) {
  const predictions = page.data.result.predictions || [];
  const found = predictions.find((prediction) => prediction.policy === page.recommended);
  if (found) {
    const {mean, interval90} = found.summary.step_time_ms;
    card.append(el("p", {class: "hint", text: "The points are means without noise. As the " +
      `scenario stands, the 90 % interval of ${ms(mean)} is ${interval(interval90)}.`}));
  }
}

/** Says in one sentence why there is no curve: all bucket sizes are equally fast. */
function drawEqualSizes(page) {
  const settings = sweepTimelines(page);
  const most = d3.max(settings, (timeline) => timeline.buckets.length);
  const [first, last] = [settings[0], settings[settings.length - 1]];
  const card = section(page, "valley", "Step time over the bucket size",
    `All ${settings.length} bucket sizes from ${shortName(first.label)} to ` +
    `${shortName(last.label)} take ${ms(first.mean_ms)} a step` +
    (most === 1 ? ", since all gradients fit into one bucket." : "."));
  sweepTable(card, page, []);
}

function sweepSentence(page) {
  const points = sweepPoints(page);
  const {name, short} = measureOf(page);
  const reference = referenceOf(page);
  const best = points.find((point) => point.best);
  const at = (point) => `${short(point.y)} at ${shortName(point.label)}`;
  return `${name}: ${at(points[0])}, ${at(points[points.length - 1])}` +
    (best ? `, ${bestWord(page)} ${at(best)}` : "") +
    (reference ? `; ${reference.name}: ${short(reference.y)}.` : ".");
}

/** Returns "best" only where the best point is worth a change. */
function bestWord(page) {
  return page.data.result.is_better === false ? "fastest" : "best";
}

/** Returns the points that a curve goes through. */
function curvePoints(page) {
  return sweepPoints(page).filter((point) => point.x > 0 && isNumber(point.y));
}

function curveDomain(page) {
  const reference = referenceOf(page);
  const values = curvePoints(page).flatMap((point) => [point.y, ...(point.band || []),
    isNumber(point.exposed) ? point.y - point.exposed : point.y]);
  return airyDomain(values.concat(reference ? [reference.y] : []));
}

/** Says so where the axis does not start at zero: a slope there looks steeper than it is. */
function axisStart(page) {
  return curveDomain(page)[0] > 0 ? "; the axis does not start at zero" : "";
}

function drawCurve(g, width, height, page) {
  const points = curvePoints(page);
  const measure = measureOf(page);
  const reference = referenceOf(page);
  const x = d3.scaleLog(d3.extent(points, (point) => point.x), [12, width - 12]);
  // Leaves room below for the best's label.
  const y = d3.scaleLinear(curveDomain(page), [height - 24, 0]);
  axisLeft(g, y, width, measure.unit, measure.tick);
  axisOfPoints(g, x, height, points);
  const banded = points.filter((point) => point.band);
  g.append("path").attr("class", "band").attr("d", d3.area().x((point) => x(point.x))
    .y0((point) => y(point.band[0])).y1((point) => y(point.band[1]))(banded));
  const exposed = points.filter((point) => isNumber(point.exposed));
  g.append("path").attr("class", "exposed-area").attr("d", d3.area().x((point) => x(point.x))
    .y0((point) => y(point.y - point.exposed)).y1((point) => y(point.y))(exposed));
  g.append("path").attr("class", "curve").attr("d", d3.line().x((point) => x(point.x))
    .y((point) => y(point.y))(points));
  if (reference && reference.x === null) {
    const far = (point) => Math.abs(y(point.y) - y(reference.y));
    markLevel(g, y(reference.y), width, `${capital(reference.name)}: ${measure.short(reference.y)}`,
      far(points[points.length - 1]) > far(points[0]));
  } else if (reference && reference.x >= points[0].x &&
      reference.x <= points[points.length - 1].x) {
    markPoint(g, x(reference.x), y(reference.y), "reference",
      `${reference.name}: ${measure.short(reference.y)}`, width, height, -1);
  }
  const best = points.find((point) => point.best);
  if (best) {
    markPoint(g, x(best.x), y(best.y), "best",
      `${bestWord(page)}, ${shortName(best.label, 16)}: ${measure.short(best.y)}`, width, height, 1);
  }
  drawPoints(g, points, x, y, page, height);
}

/** Keeps those of the rising places that are at least `pixels` apart. */
function apart(places, x, pixels) {
  return places.reduce((kept, place) => kept.length === 0 ||
    x(place) - x(kept[kept.length - 1]) >= pixels ? kept.concat(place) : kept, []);
}

/** Draws a level line with its label above it, at the left or at the right. */
function markLevel(g, y, width, words, right) {
  const mark = g.append("g").attr("class", "mark reference");
  mark.append("line").attr("x1", 0).attr("x2", width).attr("y1", y).attr("y2", y);
  mark.append("text").attr("x", right ? width - 6 : 6).attr("y", y - 6)
    .attr("text-anchor", right ? "end" : "start").text(words);
}

/** Marks a point with a line down to the axis or up to the top, and a label at that end. */
function markPoint(g, x, y, name, words, width, height, side) {
  const mark = g.append("g").attr("class", "mark " + name);
  mark.append("line").attr("x1", x).attr("x2", x).attr("y1", y).attr("y2", side < 0 ? -4 : height);
  const room = words.length * 7.4 + 6;
  const anchor = x + room <= width + 14 ? "start" : x - room >= -50 ? "end" : "middle";
  mark.append("text").attr("y", side < 0 ? -8 : height - 7).attr("text-anchor", anchor)
    .attr("x", anchor === "start" ? x + 6 : anchor === "end" ? x - 6 : width / 2).text(words);
  mark.append("path").attr("transform", `translate(${x},${y})`)
    .attr("d", d3.symbol(side < 0 ? d3.symbolDiamond : d3.symbolStar, 110)());
}

function drawPoints(g, points, x, y, page, height) {
  const follows = page.selection && page.selection.settings() === sweepTimelines(page);
  const now = follows ? page.selection.index : -1;
  const shown = points.find((point) => point.index === now);
  if (shown) {
    g.append("line").attr("class", "now-line").attr("x1", x(shown.x)).attr("x2", x(shown.x))
      .attr("y1", 0).attr("y2", height);
  }
  g.append("g").selectAll("circle").data(points).join("circle")
    .attr("class", (point) => (point === shown ? "dot now" : "dot") +
      (point.misfit ? " misfit" : ""))
    .attr("cx", (point) => x(point.x)).attr("cy", (point) => y(point.y))
    .attr("r", (point) => point === shown ? 7 : 4).filter((point) => point === shown).raise();
  const nearest = () => {
    const at = d3.mouse(g.node())[0];
    return points[d3.scan(points, (a, b) => Math.abs(x(a.x) - at) - Math.abs(x(b.x) - at))];
  };
  const [from, to] = x.range();
  g.append("rect").attr("class", "catch").attr("x", from - 12).attr("width", to - from + 24)
    .attr("height", height)
    .on("pointermove", () =>
      showTip(pointLines(nearest(), measureOf(page)), d3.event.clientX, d3.event.clientY))
    .on("pointerleave", () => showTip(null))
    .on("click", () => {
      const {index} = nearest();
      if (follows && index >= 0) {
        page.selection.chooseIndex(index);
      }
    });
}

function pointLines(point, measure) {
  const lines = [shortName(point.label), measure.words(point.y)];
  if (point.band) {
    lines.push(`90 % interval ${interval(point.band)}`);
  }
  if (point.misfit) {
    lines.push("out of memory");
  }
  if (point.row) {
    lines.push(...(measure === rateMeasure ? [`${ms(point.row.step_ms)} a step`] : []),
      `${ms(point.row.exposed_transfer_ms)} exposed, ` + plural(point.row.buckets, "bucket"));
  }
  return lines;
}
