// Draws what `stepsim diff` found: why a step changed, by which part on which rank, at which sizes.

function drawDiff(page) {
  if (page.kind !== "diff") {
    return;
  }
  const {result} = page.data;
  const card = section(page, "why", result.reasons.length > 0 ? "Why" : "What next", null);
  const list = (texts) => el("ul", {}, ...texts.map((text) => el("li", {text})));
  if (result.reasons.length > 0) {
    card.append(list(result.reasons.map(capital)), el("h3", {text: "What next"}));
  }
  card.append(list(result.next));
  if (result.settings.length > 0) {
    card.append(el("h3", {text: "What else is different"}), list(result.settings));
  }
  drawParts(page, result);
  drawSizes(page, result);
}

function drawParts(page, result) {
  const name = (row) => row.part.replace(/_/g, " ") +
    (isNumber(row.rank) ? ` of rank ${row.rank}` : "");
  if (result.parts.length === 0) {
    return;
  }
  const card = section(page, "parts", "Which part of a step moved",
    "How much longer (right) or shorter (left) each part takes after than before, at equal batches; " +
    "lines are the 99 % interval of all of them. What does not reach 0 moved beyond noise.");
  const means = result.parts.filter((row) => !isNumber(row.rank));
  const ends = means.flatMap((row) => row.interval_ms).concat(0);
  rowChart(figure(card, "Change", "of a step, mean over the ranks"),
    means.map((row) => Object.assign({strong: Boolean(row.beyond_noise)}, row, {name: name(row)})), {
      domain: [d3.min(ends), d3.max(ends)],
      unit: "ms",
      label: "Change of a step: " + means.map((row) =>
        `${name(row)} ${signedMs(row.change_ms)}`).join("; ") + ".",
      value: (row) => signedMs(row.change_ms),
      mark: (g, row, x) => {
        g.append("path").attr("class", "interval faint")
          .attr("d", `M${x(row.interval_ms[0])},8H${x(row.interval_ms[1])}M${x(0)},0V16`);
        g.append("circle").attr("class", row.strong ? "dot now" : "dot").attr("r", 5)
          .attr("cx", x(row.change_ms)).attr("cy", 8);
      },
    });
  tableOf(card, "All parts of all ranks, as a table", [
    {name: "part", text: true, value: (row) => row.part.replace(/_/g, " ")},
    {name: "rank", value: (row) => isNumber(row.rank) ? row.rank : "all"},
    {name: "before ms", value: (row) => row.before_ms.toFixed(3)},
    {name: "change ms", value: (row) => signedMs(row.change_ms)},
    {name: "99 % interval", value: (row) => row.interval_ms.map(signedMs).join(" to ")},
    {name: "verdict", text: true, value: (row) => row.beyond_noise ? "moved" : ""},
  ], result.parts);
}

function drawSizes(page, result) {
  if (result.sizes.length === 0) {
    return;
  }
  const card = section(page, "sizes", "At which sizes of batches",
    "Steps with about as many tokens on their fullest rank, before and after.");
  tableOf(card, "By tokens of the fullest rank, as a table", [
    {name: "tokens of the fullest rank", text: true, value: (row) => row.tokens.map(count).join(" to ")},
    {name: "steps", value: (row) => count(row.steps)},
    {name: "before ms", value: (row) => row.before_ms.toFixed(3)},
    {name: "change", value: (row) => signedPercent(row.change)},
    {name: "99 % interval", value: (row) => row.interval.map(signedPercent).join(" to ")},
  ], result.sizes);
}

/** Formats a change: "+1.23 ms". */
function signedMs(value) {
  return (value < 0 ? "−" : "+") + ms(Math.abs(value));
}

function diffFigures({before, after, step, useful_tokens_per_s: speed}) {
  return [["step before", ms(before.mean_step_ms)], ["step after", ms(after.mean_step_ms)],
    ...(step ? [["change at equal batches", signedPercent(step.change)],
      ["99.9 % interval", step.interval.map(signedPercent).join(" to ")]] : []),
    ...(speed && !step ? [["useful tokens/s", signedPercent(speed.change)],
      ["steps compared", `${count(before.steps)} and ${count(after.steps)}`]] : [])];
}
