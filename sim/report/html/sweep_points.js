// The points of a sweep, or of the bucket sizes of the timelines: what is asked, and of what.

const stepMeasure = {name: "Step time", unit: "ms a step", tick: null, short: ms,
  words: (value) => ms(value) + " a step"};
const rateMeasure = {name: "Useful tokens per second", unit: "useful tokens/s",
  tick: d3.format("~s"), short: (value) => count(value) + " tokens/s",
  words: (value) => count(value) + " useful tokens/s"};

/** The keys of a sweep; none for the other commands. */
function sweptKeys(page) {
  const points = page.kind === "sweep" ? page.data.result.points : [];
  return points.length > 0 ? Object.keys(points[0].values) : [];
}

/** Step time, unless the swept key changes how much a step does: then only throughput compares. */
function measureOf(page) {
  if (page.kind !== "sweep") {
    return stepMeasure;
  }
  const [low, high] = d3.extent(page.data.result.points, (point) =>
    point.useful_tokens_per_s * point.step_ms);
  return high > 1.001 * low ? rateMeasure : stepMeasure;
}

/** What a point of a sweep has of the measure. */
function valueOf(row, measure) {
  return measure === rateMeasure ? row.useful_tokens_per_s : row.step_ms;
}

/**
 * Every point: {label, x (bytes, a number or null), y (of the measure), exposed, band, index of its
 * timeline or -1, best, default, row of the sweep}.
 */
function valleyPoints(page) {
  const keys = sweptKeys(page);
  const settings = valleySettings(page);
  const drawn = settings.map((timeline, index) => ({label: timeline.label, x: timeline.cap_bytes,
    y: timeline.mean_ms, index, band: timeline.interval90, best: timeline.best,
    default: timeline.default}));
  if (keys.length !== 1) {
    return drawn;
  }
  const measure = measureOf(page);
  const isStep = measure === stepMeasure;
  const swept = page.data.result.points.map((row, i) => ({label: row.values[keys[0]], row,
    x: placeOf(row.values[keys[0]]), y: valueOf(row, measure), band: isStep && row.interval90,
    exposed: isStep ? row.exposed_communication_ms : null, best: i === page.data.result.best,
    index: settings.findIndex((timeline) => timeline.label === row.values[keys[0]])}));
  const labels = swept.map((point) => point.label);
  const besides = isStep && keys[0] === "ddp.bucket_cap"
    ? drawn.filter((point) => point.x > 0 && !labels.includes(point.label)) : [];
  return swept.concat(besides).sort((a, b) => a.x - b.x);
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

/** What the points are compared with: {name, y, x or null}; null where there is nothing. */
function referenceOf(page) {
  if (page.kind === "sweep" && page.data.result.reference) {
    const {name, step_ms: time, gap} = page.data.result.reference;
    const best = page.data.result.points[page.data.result.best];
    return {name: shortName(name), gap,
      y: measureOf(page) === stepMeasure ? time : best.useful_tokens_per_s / (1 + gap),
      x: sweptKeys(page)[0] === "ddp.bucket_cap" ? 25 * 1024 ** 2 : null};
  }
  const found = valleyPoints(page).find((point) => point.default);
  return found ? {name: "default, " + found.label, y: found.y, x: found.x} : null;
}
