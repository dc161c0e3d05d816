// Draws the head of the page: the question, its answer in one sentence, and the main figures.

function drawHead(page) {
  const {data} = page;
  const set = (id, text) => {
    document.getElementById(id).textContent = text;
  };
  const name = shortName(data.scenario.name || data.scenario.file || "");
  document.title = `${name} – stepsim ${page.kind}`;
  set("kicker", `stepsim ${page.kind} · ${name}`);
  set("question", shortName(data.question || titles[page.kind] || "Step time", 240));
  set("headline", data.headline ? asSentence(shortName(data.headline, 600)) : headlineOf(page));
  document.getElementById("figures").append(...headFigures(page).map(figureOf));
}

const titles = {
  run: "What does a step take?",
  compare: "Which batching policy is fastest?",
  advise: "What would make this training faster?",
  sweep: "Which setting is fastest?",
  tune: "What should this training run with?",
  validate: "Does the prediction hold?",
  diff: "Did the training become faster or slower?",
};

function headlineOf(page) {
  const {result} = page.data;
  if (page.kind === "validate") {
    return asSentence(shortName(result.verdict, 400));
  }
  const rows = rankedPolicies(page).filter((row) => row.choice);
  const first = rows.find((row) => row.strong) || rows[0];
  if (!first) {
    return "";
  }
  if (rows.length === 1) {
    return `A step takes ${ms(first.s.step_time_ms.mean)} (90 % interval ` +
      `${interval(first.s.step_time_ms.interval90)}): ` +
      `${count(first.s.useful_tokens_per_s)} useful tokens/s, ` +
      `${percent(first.s.padding_ratio)} padding.`;
  }
  const last = rows[rows.length - 1];
  return `Use ${shortName(first.name)}: ${count(first.s.useful_tokens_per_s)} useful tokens/s, ` +
    `${signedPercent(first.s.useful_tokens_per_s / last.s.useful_tokens_per_s - 1)} over ` +
    `${shortName(last.name)}.`;
}

function asSentence(text) {
  return capital(text) + (/[.!?…]$/.test(text) ? "" : ".");
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function headFigures(page) {
  const {result} = page.data;
  if (page.kind === "sweep") {
    const best = result.points[result.best];
    const measure = measureOf(page);
    const reference = referenceOf(page);
    return [[best.out_of_memory ? "nothing fits; fastest" : result.is_better ? "best" : "fastest", shortName(valueLabels(page, best).join(", "), 24)],
      [`${measure.name.toLowerCase()} there`, measure.short(valueOf(best, measure))],
      ...(reference ? [[reference.name, measure.short(reference.y)],
        ["gap", percent(result.reference.gap)]] : []),
      ["overlap there", percent(best.overlap_fraction, 0)]];
  }
  if (page.kind === "tune") {
    return tuneFigures(result);
  }
  if (page.kind === "validate") {
    const worst = d3.max(result.policies, (row) => Math.abs(row.error.mean));
    return [["largest error of a mean", percent(worst)], ["bound", percent(result.bound)],
      ...(result.policies.length > 1 ? [["order of the policies, Kendall tau", orderWords(result)]] : []),
      ["regret of the recommended", percent(result.regret)],
      ["means in their interval", percent(result.interval_coverage, 0)]];
  }
  if (page.kind === "diff") {
    return diffFigures(result);
  }
  const rows = rankedPolicies(page);
  const first = rows.find((row) => row.strong) || rows[0];
  if (!first) {
    return [];
  }
  const head = first.choice ? [["recommended", shortName(first.name, 28)]]
    : [["fits into memory", "none"], ["fastest if it did", shortName(first.name, 28)]];
  return [...(rows.length > 1 ? head : []),
    ["step time", ms(first.s.step_time_ms.mean)],
    ["90 % interval", interval(first.s.step_time_ms.interval90)],
    ["useful tokens/s", count(first.s.useful_tokens_per_s)],
    ...gainOverUsual(page, rows, first),
    ["padding", percent(first.s.padding_ratio)],
    ["exposed communication", ms(first.s.exposed_transfer_ms)],
    ["waiting for slower ranks", ms(first.s.waiting_for_ranks_ms)]];
}

/** The agreement of pairs that the live runs can tell apart; of the others there is none. */
function orderWords(result) {
  return isNumber(result.told_kendall_tau)
    ? result.told_kendall_tau.toFixed(2) : "too close to tell";
}

function tuneFigures(result) {
  const [best] = result.finalists;
  if (!best) {
    return [];
  }
  const price = best.with_noise;
  const own = result.own && result.references.find((one) => one.policy === result.own.policy);
  return [[result.changes_less ? "as fast with fewer changes" : "fastest", shortName(best.policy, 28)],
    ["useful tokens/s", count(price.useful_tokens_per_s)],
    ...(own ? [[`over ${shortName(own.policy, 20)} as it is`,
      signedPercent(price.useful_tokens_per_s / own.useful_tokens_per_s - 1)]] : []),
    ["step time", ms(price.step_ms)],
    ...(price.interval90_ms ? [["90 % interval", interval(price.interval90_ms)]] : []),
    ["priced of " + count(result.points), count(result.priced)],
    result.open > 0 ? ["open points could gain", percent(result.open_gain)]
      : ["nothing is faster by more than", percent(result.certificate, 2)]];
}

/** Returns the recommended policy's gain over the policy that the step pictures compare it with. */
function gainOverUsual(page, rows, first) {
  const usual = page.pairing.usual < 0 ? null : page.pairing.series[page.pairing.usual].policy;
  const found = rows.find((row) => row.name === usual);
  return !found || found === first ? [] : [[`against ${shortName(usual, 20)}`,
    signedPercent(first.s.useful_tokens_per_s / found.s.useful_tokens_per_s - 1)]];
}
