// Collects the points of a sweep, or of the timelines' bucket sizes, and what to measure at them.

const stepMeasure = {name: "Step time", unit: "ms a step", tick: null, short: ms,
  words: (value) => ms(value) + " a step"};
const rateMeasure = {name: "Useful tokens per second", unit: "useful tokens/s",
  tick: d3.format("~s"), short: (value) => count(value) + " tokens/s",
  words: (value) => count(value) + " useful tokens/s"};

/** Returns the swept keys; other commands have none. */
function sweptKeys(page) {
  return page.kind === "sweep" ? page.data.result.axes.map((axis) => axis.key) : [];
}

/** Returns the values of a sweep's row in words, one for each swept key. */
function valueLabels(page, row) {
  return page.data.result.axes.map((axis, i) => axis.labels[row.place[i]]);
}

/** Returns step time, or throughput when the swept key changes how much work a step does. */
function measureOf(page) {
  if (page.kind !== "sweep") {
    return stepMeasure;
  }
  const [low, high] = d3.extent(page.data.result.points, (point) =>
    point.useful_tokens_per_s * point.step_ms);
  return high > 1.001 * low ? rateMeasure : stepMeasure;
}

/** Returns the measure's value at a point of a sweep. */
function valueOf(row, measure) {
  return measure === rateMeasure ? row.useful_tokens_per_s : row.step_ms;
}

/**
 * Returns all points: {label, x (bytes, a number or null), y (the measure's value), exposed, band,
 * memory in MiB, misfit, index of its timeline or -1, best, own, default, row of the sweep}.
 */
function sweepPoints(page) {
  const keys = sweptKeys(page);
  const settings = sweepTimelines(page);
  const drawn = settings.map((timeline, index) => ({label: timeline.label, x: timeline.cap_bytes,
    y: timeline.mean_ms, index, band: timeline.interval90, best: timeline.best,
    misfit: timeline.out_of_memory, memory: timeline.memory_mib,
    own: timeline.own, default: timeline.default}));
  if (keys.length !== 1) {
    return drawn;
  }
  const measure = measureOf(page);
  const isStep = measure === stepMeasure;
  // Where some values are words, as placements of ranks, none has a place on an axis.
  const [axis] = page.data.result.axes;
  const placed = axis.values.every(isNumber);
  const swept = page.data.result.points.map((row, i) => ({label: axis.labels[row.place[0]], row,
    x: placed ? axis.values[row.place[0]] : null, y: valueOf(row, measure),
    band: isStep && row.interval90, exposed: isStep ? row.exposed_transfer_ms : null,
    misfit: Boolean(row.out_of_memory), memory: row.peak_memory_mib || null,
    best: i === page.data.result.best && !row.out_of_memory,
    index: settings.findIndex((timeline) => timeline.point === i)}));
  const besides = isStep && keys[0] === "ddp.bucket_cap"
    ? drawn.filter((point, i) => point.x > 0 && settings[i].point === null) : [];
  return swept.filter((point) => !point.row.refused).concat(besides).sort((a, b) => a.x - b.x);
}

/** Returns the memory of a rank's device in MiB; null where it is not known. */
function memoryCapacity(page) {
  return page.kind === "sweep" ? page.data.result.memory_capacity_mib || null
    : (sweepTimelines(page)[0] || {}).memory_capacity_mib || null;
}

/** Returns the selected policy's timelines, or the recommended one's when these are too few. */
function sweepTimelines(page) {
  if (!page.selection) {
    return [];
  }
  const shown = page.selection.settings();
  return shown.length > 2 ? shown : page.selection.byPolicy.get(page.recommended) || shown;
}

/** Returns the reference of the points, {name, y, x or null}; null when there is none. */
function referenceOf(page) {
  if (page.kind === "sweep" && page.data.result.reference.refused) {
    return null;
  }
  if (page.kind === "sweep") {
    const {name, step_ms: time, gap} = page.data.result.reference;
    const best = page.data.result.points[page.data.result.best];
    return {name: shortName(name), gap,
      y: measureOf(page) === stepMeasure ? time : best.useful_tokens_per_s / (1 + gap),
      x: page.data.result.reference.bucket_cap || null};
  }
  const found = sweepPoints(page).find((point) => point.own);
  return found ? {name: (found.default ? "default, " : "as it stands, ") + found.label, y: found.y,
    x: found.x} : null;
}
