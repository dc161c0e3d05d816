// Step time over the bucket size, or over whatever a sweep varies.

/** The keys of a sweep; none for the other commands. */
function sweptKeys(page) {
  const points = page.kind === "sweep" ? page.data.result.points : [];
  return points.length > 0 ? Object.keys(points[0].values) : [];
}

/** {x (bytes, a number or null), label, ms, exposed, band, index} of every point. */
function valleyPoints(page) {
  const keys = sweptKeys(page);
  if (keys.length === 1) {
    return page.data.result.points.map((point, index) => ({label: point.values[keys[0]],
      x: placeOf(point.values[keys[0]]), ms: point.step_ms, index, band: point.interval90,
      exposed: point.exposed_communication_ms, best: index === page.data.result.best,
      row: point}));
  }
  return valleySettings(page).map((timeline, index) => ({label: timeline.label,
    x: timeline.cap_bytes, ms: timeline.mean_ms, index, band: timeline.interval90,
    best: timeline.best, default: timeline.default}));
}

/** The settings of the policy shown; of the recommended one where that has too few. */
function valleySettings(page) {
  if (!page.setting) {
    return [];
  }
  const shown = page.setting.settings();
  return shown.length > 2 ? shown : page.setting.byPolicy.get(page.recommended) || shown;
}

function placeOf(label) {
  const size = bytesOf(label);
  return size === null && label.trim() !== "" && isFinite(Number(label)) ? Number(label) : size;
}

function drawValley(page) {
  const keys = sweptKeys(page);
  if (keys.length > 1) {
    drawGridOfSweep(page, keys);
    return;
  }
  if (!valleyPoints(page).some((point, i, all) => all.length > 2 && point.x > 0)) {
    if (keys.length === 1) {
      drawSweptChoices(page, keys[0]);
    }
    return;
  }
  const cap = keys.length === 0 || keys[0] === "ddp.bucket_cap";
  if (keys.length === 0 && areEqual(valleySettings(page))) {
    drawFlat(page);
    return;
  }
  const card = section(page, "valley", cap ? "The valley" : "Step time over " + shortName(keys[0]),
    cap ? "Mean step time at each bucket size: too small pays for every message, too large " +
      "leaves nothing to overlap with. A click on a point moves the timeline there." : null);
  const box = figure(card, "Step time",
    cap ? "over the bucket size" : "over " + shortName(keys[0]));
  const again = chart(box, {height: (width) => width < 520 ? 300 : 340,
    margin: {top: 26, left: 56, bottom: 42},
    label: () => valleySentence(valleyPoints(page), referenceOf(page))},
    (g, width, height) => drawCurve(g, width, height, page));
  if (page.setting) {
    page.setting.onChange(again);
  }
  if (valleyPoints(page).some((point) => isNumber(point.exposed))) {
    legend(card, [["line-curve", "step"], ["exposed", "of which exposed communication"]]);
  }
  sweepTable(card, page, keys);
}

/** No valley: one sentence says why. */
function drawFlat(page) {
  const settings = valleySettings(page);
  const most = d3.max(settings, (timeline) => timeline.buckets.length);
  const [first, last] = [settings[0], settings[settings.length - 1]];
  const card = section(page, "valley", "The valley",
    `There is none: all ${settings.length} bucket sizes from ${shortName(first.label)} to ` +
    `${shortName(last.label)} take ${ms(first.mean_ms)} a step` +
    (most === 1 ? ", since all gradients fit into one bucket." : "."));
  sweepTable(card, page, []);
}

/** What the points are compared with: the default that the command priced, or a timeline. */
function referenceOf(page) {
  if (page.kind === "sweep" && page.data.result.reference) {
    const {name, step_ms: time, gap} = page.data.result.reference;
    const cap = sweptKeys(page)[0] === "ddp.bucket_cap";
    return {name: shortName(name), ms: time, gap, x: cap ? 25 * 1024 ** 2 : null};
  }
  const found = valleyPoints(page).find((point) => point.default);
  return found ? {name: "default, " + found.label, ms: found.ms, x: found.x} : null;
}

function valleySentence(points, reference) {
  const best = points.find((point) => point.best) || points[d3.scan(points, (a, b) => a.ms - b.ms)];
  const low = points[0];
  const high = points[points.length - 1];
  return `Step time over the setting: ${ms(low.ms)} at ${shortName(low.label)}, least ` +
    `${ms(best.ms)} at ${shortName(best.label)}, ${ms(high.ms)} at ${shortName(high.label)}` +
    (reference ? `; ${reference.name}: ${ms(reference.ms)}.` : ".");
}

function drawCurve(g, width, height, page) {
  const points = valleyPoints(page).filter((point) => point.x > 0 && isNumber(point.ms));
  const reference = referenceOf(page);
  const x = d3.scaleLog(d3.extent(points, (point) => point.x), [12, width - 12]);
  const values = points.flatMap((point) => [point.ms, ...(point.band || []),
    isNumber(point.exposed) ? point.ms - point.exposed : point.ms]);
  const domain = airyDomain(values.concat(reference ? [reference.ms] : []));
  const y = d3.scaleLinear(domain, [height - 24, 0]);  // the words of the best stand below
  axisLeft(g, y, width, "ms a step");
  g.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`)
    .call(d3.axisBottom(x)
      .tickValues(apart(points.map((point) => point.x), (at) => x(at), 58))
      .tickFormat((at) => shortName(points.find((point) => point.x === at).label, 12)));
  const exposed = points.filter((point) => isNumber(point.exposed));
  g.append("path").attr("class", "exposed-area").attr("d", d3.area().x((point) => x(point.x))
    .y0((point) => y(point.ms - point.exposed)).y1((point) => y(point.ms))(exposed));
  const banded = points.filter((point) => point.band);
  g.append("path").attr("class", "band").attr("d", d3.area().x((point) => x(point.x))
    .y0((point) => y(point.band[0])).y1((point) => y(point.band[1]))(banded));
  g.append("path").attr("class", "curve").attr("d", d3.line().x((point) => x(point.x))
    .y((point) => y(point.ms))(points));
  if (reference && reference.x >= points[0].x && reference.x <= points[points.length - 1].x) {
    markPoint(g, x(reference.x), y(reference.ms), "reference",
      `${reference.name}: ${ms(reference.ms)}`, width, height, -1);
  }
  const best = points.find((point) => point.best);
  if (best) {
    markPoint(g, x(best.x), y(best.ms), "best",
      `best, ${shortName(best.label, 16)}: ${ms(best.ms)}`, width, height, 1);
  }
  drawPoints(g, points, x, y, page, height);
}

/** Of places in rising order those that leave `pixels` between them. */
function apart(places, x, pixels) {
  return places.reduce((kept, place) => kept.length === 0 ||
    x(place) - x(kept[kept.length - 1]) >= pixels ? kept.concat(place) : kept, []);
}

/** A point with a line down to the axis, or up to the top, and its words at that end. */
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
  const follows = page.setting && page.setting.settings() === valleySettings(page) &&
    page.setting.settings().length === points.length;
  const now = follows ? page.setting.index : -1;
  const shown = points.find((point) => point.index === now);
  if (shown) {
    g.append("line").attr("class", "now-line").attr("x1", x(shown.x)).attr("x2", x(shown.x))
      .attr("y1", 0).attr("y2", height);
  }
  g.append("g").selectAll("circle").data(points).join("circle")
    .attr("class", (point) => point === shown ? "dot now" : "dot")
    .attr("cx", (point) => x(point.x)).attr("cy", (point) => y(point.ms))
    .attr("r", (point) => point === shown ? 7 : 4).filter((point) => point === shown).raise();
  const nearest = () => {
    const at = d3.mouse(g.node())[0];
    return points[d3.scan(points, (a, b) => Math.abs(x(a.x) - at) - Math.abs(x(b.x) - at))];
  };
  const [from, to] = x.range();
  g.append("rect").attr("class", "catch").attr("x", from - 12).attr("width", to - from + 24)
    .attr("height", height)
    .on("pointermove", () =>
      showTip(pointLines(nearest()), d3.event.clientX, d3.event.clientY))
    .on("pointerleave", () => showTip(null))
    .on("click", () => {
      if (now >= 0) {
        page.setting.chooseIndex(nearest().index);
      }
    });
}

function pointLines(point) {
  const lines = [shortName(point.label), `${ms(point.ms)} a step`];
  if (point.band) {
    lines.push(`90 % interval ${interval(point.band)}`);
  }
  if (point.row) {
    lines.push(`${ms(point.exposed)} exposed, ${plural(point.row.buckets, "bucket")}`);
  }
  return lines;
}
