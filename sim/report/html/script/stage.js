// Draws the first picture: controls, the timeline of one step and its figures.

/** Returns the common name of the key that the slider moves along. */
function sliderName(page) {
  const axis = sweptKeys(page)[0];
  if (!axis && page.selection.current().cap_bytes === null) {
    return "Setting";
  }
  return !axis || axis === "ddp.bucket_cap" ? "Bucket size" : axis;
}

function drawStage(page) {
  const selection = page.selection;
  const many = selection.policies.some((policy) => selection.byPolicy.get(policy).length > 1);
  const card = section(page, "timeline", "One step on every rank", many
    ? "The upper lane of a rank is its compute, the lower one its communication. Move the " +
      "slider: " + (selection.caps
      ? "small buckets start early but pay for every message, large ones start late. "
      : "each place is one value. ") + (selection.policies.length > 1 ? "All settings of a policy" : "All settings") +
      " share one time scale" + (selection.policies.some((policy) =>
      selection.byPolicy.get(policy).some((timeline) => timeline.out_of_memory))
      ? "; those that do not fit into memory have a longer one." : ".")
    : "The upper lane of a rank is its compute, the lower one its communication.");
  const drawn = selection.current().ranks.length;
  const {ranks} = page.data.scenario;
  if (ranks > drawn) {
    card.append(el("p", {class: "lead", text: `${drawn} of the ${ranks} ranks are drawn, among ` +
      "them those with the least and with the most compute."}));
  }
  const controls = el("div", {class: "controls"});
  card.append(controls);
  if (selection.policies.length > 1) {
    const {policies} = selection;
    controls.append(choice("Policy", policies, policies.indexOf(selection.policy),
      (i) => selection.choosePolicy(policies[i])));
  }
  drawSlider(controls, page);
  drawFigures(card, selection);
  legend(card, timelineLegend(selection));
  const timeline = new Timeline(card, selection);
  const player = new Player(card, timeline, selection);
  drawZoom(player.button.parentNode, timeline);
  drawBucketTable(card, selection);
}

/** Returns legend entries for the kinds of work that occur in the timelines. */
function timelineLegend(selection) {
  const used = new Set();
  const others = new Set();
  for (const timeline of [...selection.byPolicy.values()].flat()) {
    for (const rank of timeline.ranks) {
      rank.compute.forEach((span) => used.add(kindClasses[span[2]]));
      for (const [, , , number, name] of rank.buckets) {
        used.add(number < 0 ? "other-transfer" : "transfer");
        if (number < 0) {
          others.add(shortName(name || "other collective", 24));
        }
      }
      if (rank.exposed.length > 0) {
        used.add("exposed");
      }
      if (rank.waiting.length > 0) {
        used.add("waiting");
      }
    }
  }
  return [["data", "data"], ["forward", "forward"], ["backward", "backward"],
    ["optimizer", "optimizer"], ["other", "other work"], ["transfer", "transfer of a bucket"],
    ["other-transfer", [...others].join(", ")],
    ["exposed", "exposed: idle for a transfer"], ["waiting", "waiting for a slower rank"]]
    .filter(([name]) => used.has(name));
}

function timelineWords(timeline) {
  const both = timeline.default && timeline.best;
  const role = both ? "default, best" : roleOf(timeline);
  return shortName(timeline.label) + (role && role !== timeline.label ? ` (${role})` : "");
}

function drawSlider(controls, page) {
  const selection = page.selection;
  const name = sliderName(page);
  const slider = el("input", {type: "range", id: "timeline-selection", min: 0, step: 1,
    oninput: () => selection.chooseIndex(Number(slider.value))});
  const value = el("output", {for: "timeline-selection", class: "timeline-selection-value"});
  const ticks = el("div", {class: "ticks", "aria-hidden": "true"});
  const box = el("div", {class: "slider"},
    el("label", {for: "timeline-selection"}, el("span", {text: name}), value), slider, ticks);
  controls.append(box);
  const update = (what) => {
    const settings = selection.settings();
    box.classList.toggle("single", settings.length < 2);
    slider.disabled = settings.length < 2;
    slider.max = settings.length - 1;
    slider.value = selection.index;
    slider.setAttribute("aria-valuetext", timelineWords(selection.current()));
    value.textContent = timelineWords(selection.current());
    if (what !== "index") {
      drawTicks(ticks, settings, selection);
    }
  };
  update("policy");
  selection.onChange(update);
  new ResizeObserver(() => drawTicks(ticks, selection.settings(), selection)).observe(box);
}

/** Draws a tick for every setting, and labels the default, the best and, if they fit, the ends. */
function drawTicks(ticks, settings, selection) {
  const last = settings.length - 1;
  if (last < 1) {
    ticks.replaceChildren();
    return;
  }
  const named = settings.map((timeline, i) => ({timeline, i}))
    .filter(({timeline}) => roleOf(timeline));
  for (const i of [0, last]) {
    if (named.every((other) => Math.abs(other.i - i) > last * 0.24)) {
      named.push({timeline: settings[i], i});
    }
  }
  const words = 110;  // width of a label in pixels
  const close = named.some((one) => named.some((other) => other !== one &&
    Math.abs(other.i - one.i) / last * ticks.clientWidth < words));
  ticks.classList.toggle("two-rows", close);
  ticks.replaceChildren(...settings.map((timeline, i) => {
    const role = roleOf(timeline);
    const tick = el("span", {class: `tick${role ? " role" : ""}${role === "best" ? " best" : ""}`,
      style: `--at:${i / last}`});
    if (named.some((entry) => entry.i === i)) {
      tick.append(el("button", {type: "button", tabindex: "-1",
        text: (role ? role + " " : "") + shortName(timeline.label, 16),
        class: i === 0 ? "first" : i === last ? "last" : null,
        onclick: () => selection.chooseIndex(i)}));
    }
    return tick;
  }));
}

/** Shows the figures of the selected timeline as large numbers. */
function drawFigures(card, selection) {
  const list = el("dl", {class: "figures", id: "timeline-figures"});
  card.append(list);
  const update = () => {
    const now = selection.current();
    const best = selection.settings().find((timeline) => timeline.best);
    const figures = [["this step", usAsMs(now.shown_us)],
      ["mean of all steps", ms(now.mean_ms)],
      ["idle for transfers, mean of the ranks", usAsMs(meanOverRanks(now, "exposed"))],
      ["waiting for slower ranks", usAsMs(meanOverRanks(now, "waiting"))],
      [bucketWord(now) + "s", count(now.buckets.length)]];
    if (selection.caps && best && isNumber(best.mean_ms) && isNumber(now.mean_ms)) {
      figures.splice(2, 0, ["against the best", now === best ? "the best"
        : signedPercent(now.mean_ms / best.mean_ms - 1)]);
    }
    list.replaceChildren(...figures.map(figureOf));
  };
  update();
  selection.onChange(update);
}

function figureOf([name, value]) {
  return el("div", {}, el("dt", {text: name}), el("dd", {text: value}));
}

function drawZoom(box, timeline) {
  const button = (text, words, act) =>
    el("button", {type: "button", "aria-label": words, title: words, text, onclick: act});
  box.append(el("span", {class: "zoom"},
    button("−", "Zoom out", () => timeline.zoomBy(1 / 1.6)),
    button("+", "Zoom in", () => timeline.zoomBy(1.6)),
    button("Fit", "Fit: show the whole step", () => timeline.fit())));
  box.parentNode.append(el("p", {class: "hint", text: "Hover or touch a bar for its times. " +
    "Ctrl + wheel, pinch or + and − zoom, dragging pans; arrow keys go from bar to bar."}));
}

/** Shows the buckets and the ranks of the selected timeline as tables. */
function drawBucketTable(card, selection) {
  const box = el("div");
  card.append(box);
  const update = () => {
    const open = [...box.querySelectorAll("details")].map((details) => details.open);
    const now = selection.current();
    box.replaceChildren();
    const first = (b) => now.ranks.map((rank) => rank.buckets.find((entry) => entry[3] === b))
      .filter(Boolean);
    const fixed = (us) => isNumber(us) ? (us / 1000).toFixed(3) : "–";
    const tables = [tableOf(box, `The ${bucketWord(now)}s as a table`, [
      {name: bucketWord(now), value: (b) => b + 1},
      {name: "size", value: (b) => bytes(now.buckets[b][0])},
      {name: "tensors", value: (b) => count(now.buckets[b][1])},
      {name: "first rank ready ms", value: (b) => fixed(d3.min(first(b), (entry) => entry[0]))},
      {name: "last rank ready ms", value: (b) => fixed(d3.max(first(b), (entry) => entry[0]))},
      {name: "transfer starts ms", value: (b) => fixed(d3.min(first(b), (entry) => entry[1]))},
      {name: "ends ms", value: (b) => fixed(d3.max(first(b), (entry) => entry[2]))},
    ], d3.range(now.buckets.length)), tableOf(box, "The ranks as a table", [
      {name: "rank", value: (rank) => rankNumber(now, now.ranks.indexOf(rank))},
      ...[0, 1, 2, 3, 4].map((kind) => ({name: kindNames[kind] + " ms",
        value: (rank) => fixed(sumOf(rank.compute.filter((span) => span[2] === kind)))})),
      {name: "idle for transfers ms", value: (rank) => fixed(sumOf(rank.exposed))},
      {name: "waiting ms", value: (rank) => fixed(sumOf(rank.waiting))},
      {name: "useful tokens", value: (rank) => count(rank.useful)},
      {name: "padded tokens", value: (rank) => count(rank.padded)},
    ], now.ranks)];
    tables.forEach((details, i) => {
      details.open = Boolean(open[i]);
    });
  };
  update();
  selection.onChange(update);
}
