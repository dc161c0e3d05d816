// Draws what `stepsim tune` priced: speed against memory or against change of order, and its front.

/** What the front weighs against speed. */
const frontMeasures = [
  {name: "peak memory", title: "peak memory, MiB", value: (point) => point.without_noise.peak_memory_mib,
    words: (value) => bytes(value * 1024 ** 2) + " of memory"},
  {name: "change of order", title: "mean distance from the sampler's order, % of an epoch",
    value: (point) => 100 * point.order_change, words: (value) => value.toFixed(1) + " % order change"},
];

function speedOf(point) {
  return point.without_noise.useful_tokens_per_s;
}

/** Returns the points that no other one beats in speed and this measure, the least of it first. */
function frontOver(points, measure) {
  const rows = points.slice().sort((a, b) =>
    measure.value(a) - measure.value(b) || speedOf(b) - speedOf(a));
  let fastest = -Infinity;
  return rows.filter((point) => {
    const better = speedOf(point) > fastest;
    fastest = Math.max(fastest, speedOf(point));
    return better;
  });
}

function drawFront(page) {
  if (page.kind !== "tune") {
    return;
  }
  const {front, own, front_open: open} = page.data.result;
  const names = new Set(front.map((point) => point.setting));
  const others = page.data.result.points_priced.filter((point) => !names.has(point.setting));
  const points = front.concat(others);
  const measures = frontMeasures.filter((measure) => {
    const [low, high] = d3.extent(points, measure.value);
    return high > low;
  });
  if (points.length < 2 || measures.length === 0) {
    return;
  }
  const card = section(page, "front", "What speed costs",
    "Each point is a setting that was predicted, without noise. A solid one is on the front: nothing " +
    "is faster with as little memory and as little change of the sampler's order. Point at one to " +
    "read it, click on it to keep it.");
  const view = {measure: measures[0], kept: front[0]};
  const controls = el("div", {class: "controls"});
  card.append(controls);
  const box = figure(card, "Useful tokens per second", "of the predicted settings");
  const kept = el("div", {class: "kept", "aria-live": "polite"});
  const again = chart(box, {height: (width) => width < 520 ? 320 : 380,
    margin: {top: 26, left: 56, bottom: 42}, label: () => frontSentence(front, view.measure)},
  (g, width, height) => drawFrontPoints(g, width, height, {front, others, own, view,
    keep: (point) => {
      view.kept = point;
      showKept(kept, page, point);
      again();
    }}));
  if (measures.length > 1) {
    controls.append(choice("Speed against", measures.map((measure) => measure.name), 0, (i) => {
      view.measure = measures[i];
      again();
    }));
  }
  legend(card, [["front-swatch", "on the front"], ["priced-swatch", "predicted"],
    ["line-front-line", "the fastest so far along this axis"]]);
  card.append(kept);
  showKept(kept, page, view.kept);
  if (open > 0) {
    card.append(el("p", {class: "hint",
      text: `${plural(open, "setting")} that were not predicted could be on the front, too.`}));
  }
  frontTable(card, front);
}

function frontSentence(front, measure) {
  const fastest = front[0];
  const least = d3.scan(front, (a, b) => measure.value(a) - measure.value(b));
  const words = (point) => `${count(speedOf(point))} useful tokens/s with ` +
    `${measure.words(measure.value(point))} (${shortName(point.setting, 120)})`;
  return `${plural(front.length, "setting")} on the front: from ${words(front[least])} to ` +
    `${words(fastest)}.`;
}

function drawFrontPoints(g, width, height, {front, others, own, view, keep}) {
  const {measure} = view;
  const placed = (point) => isNumber(measure.value(point));
  const mine = own && placed(own) ? [own] : [];
  const points = front.concat(others);
  const x = d3.scaleLinear(airyDomain(points.concat(mine).map(measure.value)), [8, width - 12]);
  const y = d3.scaleLinear(airyDomain(points.concat(mine).map(speedOf)), [height - 24, 0]);
  axisLeft(g, y, width, "useful tokens/s", d3.format("~s"));
  axisBelow(g, x, width, height, measure.title);
  const left = (point) => x(measure.value(point));
  const top = (point) => y(speedOf(point));
  const line = frontOver(front, measure);
  g.append("path").attr("class", "front-line")
    .attr("d", d3.line().x(left).y(top).curve(d3.curveStepAfter)(line) + `H${width}`);
  const dots = (rows, name, radius) => g.append("g").selectAll("circle").data(rows).join("circle")
    .attr("class", name).attr("r", radius).attr("cx", left).attr("cy", top);
  dots(others, "priced-point", 2.6);
  dots(front, "front-point", 4.6);
  dots([view.kept], "front-point kept-point", 7);
  for (const point of mine) {
    markPoint(g, left(point), top(point), "reference", `now: ${shortName(point.policy, 20)}`,
      width, height, -1);
  }
  markPoint(g, left(front[0]), top(front[0]), "best", `fastest: ${count(speedOf(front[0]))}`,
    width, height, 1);
  const nearest = () => {
    const [across, down] = d3.mouse(g.node());
    const all = points.concat(mine);
    const away = (point) => Math.hypot(left(point) - across, top(point) - down);
    return all[d3.scan(all, (a, b) => away(a) - away(b))];
  };
  g.append("rect").attr("class", "catch").attr("width", width).attr("height", height)
    .on("pointermove", () => showTip(frontLines(nearest()), d3.event.clientX, d3.event.clientY))
    .on("pointerleave", () => showTip(null))
    .on("click", () => {
      const point = nearest();
      if (!mine.includes(point)) {
        keep(point);
      }
    });
}

function frontLines(point) {
  return [shortName(point.setting, 160), `${count(speedOf(point))} useful tokens/s, ` +
    `${ms(point.without_noise.step_ms)} a step`,
  ...frontMeasures.filter((measure) => isNumber(measure.value(point)))
    .map((measure) => measure.words(measure.value(point)))];
}

/** Shows a point and the command that prices it in detail. */
function showKept(box, page, point) {
  const {file} = page.data.scenario;
  const words = ["stepsim run", shellWord(file), "--policy", shellWord(point.policy),
    ...page.data.result.set.concat(point.set).flatMap((setting) => ["--set", shellWord(setting)])];
  const code = el("code", {text: words.join(" ")});
  const button = el("button",
    {type: "button", text: "Copy", onclick: () => copyText(code, button)});
  const [name, ...rest] = frontLines(point);
  box.replaceChildren(el("p", {}, el("strong", {text: name}), " – " + rest.join(", ")),
    el("div", {class: "command"}, el("pre", {tabindex: "0"}, code), button));
}

/** Quotes a word for a shell where it needs that. */
function shellWord(word) {
  const plain = plainText(word);
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(plain) ? plain : "'" + plain.replace(/'/g, "'\\''") + "'";
}

function frontTable(card, front) {
  tableOf(card, "The front as a table", [
    {name: "setting", text: true, value: (point) => shortName(point.setting, 200)},
    {name: "useful tokens/s", value: (point) => count(speedOf(point))},
    {name: "step ms", value: (point) => point.without_noise.step_ms.toFixed(3)},
    {name: "memory", value: (point) => memoryText(point.without_noise.peak_memory_mib)},
    {name: "order change", value: (point) => percent(point.order_change)},
    {name: "tokens left out", value: (point) => percent(point.tokens_left_out)},
    {name: "samples a step", value: (point) => point.samples_per_step.toFixed(1)},
  ], front);
}
