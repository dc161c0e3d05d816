// Compares the policies by useful tokens per second.

/**
 * Returns the predictions, best first and those that do not fit into memory last; `choice` is false
 * for these and for references on data of their own.
 */
function rankedPolicies(page) {
  const rows = (page.data.result.predictions || []).map((prediction) => ({
    name: prediction.policy,
    // What decides whether a policy fits is the largest batch of the first epoch.
    s: {...prediction.summary,
      peak_memory_mib: prediction.largest_memory_mib || prediction.summary.peak_memory_mib},
    prediction,
    reference: isReference(page, prediction.policy),
    misfit: isMisfit(page, prediction.policy),
    choice: !isReference(page, prediction.policy) && !isMisfit(page, prediction.policy),
    strong: prediction.policy === page.recommended,
  }));
  rows.sort((a, b) => a.misfit - b.misfit || b.s.useful_tokens_per_s - a.s.useful_tokens_per_s);
  if (rows.length > 0 && rows.every((row) => row.misfit)) {
    rows.forEach((row, i) => { row.strong = i === 0; });  // None is recommended.
  }
  return rows;
}

/** Whether a policy runs on data of its own. */
function isReference(page, policy) {
  return (page.data.references || []).includes(policy);
}

/** Whether a policy of the page's predictions does not fit into memory. */
function isMisfit(page, policy) {
  return (page.data.result.predictions || []).some((prediction) =>
    prediction.policy === policy && prediction.out_of_memory);
}

function drawPolicies(page) {
  const rows = rankedPolicies(page);
  if (rows.length < 2) {
    return;
  }
  const references = rows.some((row) => row.reference);
  const misfits = rows.some((row) => row.misfit);
  rows.forEach((row) => {
    row.name += (row.reference ? " *" : "") + (row.misfit ? " !" : "");
  });
  const card = section(page, "policies", "The policies", "Sorted by useful tokens per second. " +
    "A policy with longer steps can be the faster one: it may put more tokens into each." +
    (references ? " * runs on data of its own: a reference, not a choice." : "") +
    (misfits ? " ! does not fit into memory: not a choice." : ""));
  const grid = el("div", {class: "pair"});
  card.append(grid);
  const tokensOf = (row, time) => row.s.useful_tokens_per_step / time * 1000;
  const ends = (row) => row.s.step_time_ms.interval90;
  const most = d3.max(rows, (row) =>
    Math.max(row.s.useful_tokens_per_s, tokensOf(row, ends(row)[0])));
  rowChart(figure(grid, "Useful tokens per second",
    "with what the 90 % interval of the step allows"), rows, {
      domain: [0, most], unit: "useful tokens/s", format: d3.format("~s"),
      label: policiesSentence(rows),
      value: (row) => count(row.s.useful_tokens_per_s),
      mark: (g, row, x) => {
        barMark(g, x(0), x(row.s.useful_tokens_per_s), policyClass(row));
        intervalMark(g, x(tokensOf(row, ends(row)[1])), x(tokensOf(row, ends(row)[0])));
      },
    });
  rowChart(figure(grid, "Step time", "mean, 90 % interval, and p95 as a tick"), rows, {
    domain: airyDomain(rows.flatMap((row) => [...ends(row), row.s.step_time_ms.p95])),
    unit: "ms a step",
    label: stepTimesSentence(rows),
    value: (row) => `${ms(row.s.step_time_ms.mean)}, ${interval(ends(row))}`,
    mark: (g, row, x) => {
      intervalMark(g, x(ends(row)[0]), x(ends(row)[1]));
      g.append("circle").attr("cx", x(row.s.step_time_ms.mean)).attr("cy", 6.5).attr("r", 5.5)
        .attr("class", "bar-mark " + policyClass(row));
      g.append("line").attr("class", "p95").attr("y1", 0).attr("y2", 13)
        .attr("x1", x(row.s.step_time_ms.p95)).attr("x2", x(row.s.step_time_ms.p95));
    },
  });
  policiesTable(card, rows, page.data.columns);
  trainingTable(card, rows);
}

function policyClass(row) {
  return row.misfit ? "misfit" : row.strong ? "chosen" : row.choice ? "baseline" : "reference-case";
}

function intervalMark(g, from, to) {
  g.append("path").attr("class", "interval")
    .attr("d", `M${from},2.5v8M${from},6.5H${to}M${to},2.5v8`);
}

function policiesSentence(rows) {
  return "Useful tokens per second: " + rows.map((row) =>
    `${shortName(row.name)} ${count(row.s.useful_tokens_per_s)}`).join(", ") + ".";
}

function stepTimesSentence(rows) {
  return "Step time with 90 % interval: " + rows.map((row) => `${shortName(row.name)} ` +
    `${ms(row.s.step_time_ms.mean)}, ${interval(row.s.step_time_ms.interval90)}`).join("; ") + ".";
}

/** The columns that the program names, so that a new figure needs no change here. */
function policiesTable(card, rows, columns) {
  tableOf(card, "The policies as a table", [
    {name: "policy", text: true, value: (row) => shortName(row.name)},
    ...columns.map(({key, heading, format}) => ({name: heading, value: (row) =>
      figureFormats[format](key.split("/").reduce((at, member) => at[member], row.s))})),
  ], rows);
}

/** Shows what one epoch loses, repeats and moves, for the predictions that state it. */
function trainingTable(card, rows) {
  const stated = rows.filter((row) => row.prediction.training);
  if (stated.length === 0) {
    return;
  }
  const share = (part, whole) =>
    count(part) + (whole > 0 ? ` (${percent(part / whole)})` : "");
  const of = (row) => row.prediction.training;
  tableOf(card, "One epoch of training as a table", [
    {name: "policy", text: true, value: (row) => shortName(row.name)},
    {name: "steps", value: ({prediction: {training: {fewest_steps: low, most_steps: high}}}) =>
      low === high ? count(high) : `${count(low)}–${count(high)}`},
    {name: "lost samples", value: (row) => share(of(row).lost_samples, of(row).samples)},
    {name: "repeated", value: (row) => share(of(row).repeated_samples, of(row).samples)},
    {name: "sample skew", value: (row) => of(row).sample_skew.toFixed(3)},
    {name: "token skew", value: (row) => of(row).token_skew.toFixed(3)},
    {name: "order change", value: (row) => percent(of(row).displacement)},
    {name: "shapes", value: (row) => count(of(row).distinct_shapes)},
  ], stated);
}
