// The parts that all charts share: a picture that fits its box, axes and marks.

/**
 * Makes an SVG as wide as its box and draws it again when that changes. `options` are height (a
 * number or a function of the width), margin, and label (a sentence with the figures).
 * `draw(g, width, height)` draws inside the margins. Returns a function that draws again.
 */
function chart(box, options, draw) {
  const svg = d3.select(box).append("svg").attr("role", "img");
  let width = 0;
  const again = () => {
    width = Math.max(220, Math.floor(box.clientWidth));
    const margin = Object.assign({top: 10, right: 14, bottom: 34, left: 52}, options.margin);
    const height = typeof options.height === "function" ? options.height(width) : options.height;
    svg.attr("width", width).attr("height", height).attr("viewBox", `0 0 ${width} ${height}`);
    svg.attr("aria-label", typeof options.label === "function" ? options.label() : options.label);
    svg.selectAll("*").remove();
    const g = svg.append("g").attr("transform", `translate(${margin.left},${margin.top})`);
    draw(g, width - margin.left - margin.right, height - margin.top - margin.bottom);
  };
  again();
  new ResizeObserver(() => {
    if (Math.floor(box.clientWidth) !== width) {
      again();
    }
  }).observe(box);
  return again;
}

/** Draws a horizontal axis under the chart, with its title at the right end. */
function axisBelow(g, scale, width, height, title, ticks, format) {
  const axis = d3.axisBottom(scale).ticks(ticks || Math.max(3, Math.floor(width / 80)));
  if (format) {
    axis.tickFormat(format);
  }
  g.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`).call(axis);
  if (title) {
    g.append("text").attr("class", "axis-title").attr("x", width).attr("y", height + 31)
      .attr("text-anchor", "end").text(title);
  }
}

/** Moves labels at the ends of a horizontal axis that would be cut in the middle of their ticks. */
function keepLabelsInside(axis, scale, width) {
  const edge = 20;
  axis.selectAll(".tick text").attr("text-anchor", (value) =>
    scale(value) < edge ? "start" : scale(value) > width - edge ? "end" : "middle");
}

/** Draws a vertical axis with grid lines and its title above. */
function axisLeft(g, scale, width, title, format) {
  const axis = d3.axisLeft(scale).ticks(5).tickSize(-width);
  if (format) {
    axis.tickFormat(format);
  }
  g.append("g").attr("class", "axis grid").call(axis);
  if (title) {
    g.append("text").attr("class", "axis-title").attr("x", -44).attr("y", -11).text(title);
  }
}

/** Returns a domain with some room around the values; it starts at zero unless that hides them. */
function airyDomain(values, fromZero) {
  const [low, high] = d3.extent(values);
  if (low === undefined) {
    return [0, 1];
  }
  if (fromZero || low < 0.4 * high) {
    return [Math.min(0, low), high > 0 ? high * 1.06 : 1];
  }
  // At least a tenth of the value, so that what differs by a percent looks flat.
  const air = Math.max((high - low) * 0.12, (Math.abs(high) * 0.1 - (high - low)) / 2);
  return [low - air, high + air];
}

/** Adds the hatched fills, once per page; their colours come from the style sheet. */
function addPatterns() {
  const svg = d3.select(document.body).append("svg")
    .attr("width", 0).attr("height", 0).attr("class", "patterns").attr("aria-hidden", "true");
  const defs = svg.append("defs");
  for (const name of ["exposed", "waiting", "padding"]) {
    const pattern = defs.append("pattern").attr("id", "hatch-" + name)
      .attr("patternUnits", "userSpaceOnUse").attr("width", 6).attr("height", 6)
      .attr("patternTransform", `rotate(${name === "waiting" ? -45 : 45})`);
    pattern.append("rect").attr("width", 6).attr("height", 6).attr("class", "hatch-back " + name);
    pattern.append("rect").attr("width", 2.4).attr("height", 6).attr("class", "hatch-line " + name);
  }
}

/**
 * Draws one row per entry, with the name above the mark, so that any name fits any width. `rows`
 * are {name, strong}; `mark(g, row, x)` draws into a line of 16 px; `value(row)` is written at the
 * end of the name's line, or below it in all rows when one of them lacks room.
 */
function rowChart(box, rows, options) {
  const letter = 6.9;  // width of a letter, about, in pixels
  const longest = d3.max(rows, (row) =>
    shortName(row.name).length + options.value(row).length) * letter + 16;
  const lines = (width) => longest > width - 20 ? 2 : 1;
  return chart(box, {
    height: (width) => rows.length * (22 + 16 * lines(width)) + 40,
    margin: {left: 6, top: 2, right: 14},
    label: options.label,
  }, (g, width, height) => {
    const x = d3.scaleLinear(options.domain, [0, width]).nice(5);
    g.append("g").attr("class", "axis grid vertical").attr("transform", `translate(0,${height})`)
      .call(d3.axisBottom(x).ticks(Math.max(3, Math.floor(width / 90))).tickSize(-height)
        .tickFormat(options.format || null)).call(keepLabelsInside, x, width);
    g.append("text").attr("class", "axis-title").attr("x", width).attr("y", height + 31)
      .attr("text-anchor", "end").text(options.unit);
    const two = lines(width + 20) === 2;
    const pitch = two ? 54 : 38;
    rows.forEach((row, i) => {
      const line = g.append("g").attr("transform", `translate(0,${i * pitch})`)
        .attr("class", row.strong ? "row strong" : "row");
      const value = options.value(row);
      const room = Math.floor(width / letter) - (two ? 0 : value.length + 2);
      line.append("text").attr("class", "row-name").attr("y", 12).text(shortName(row.name, room))
        .append("title").text(shortName(row.name, 200));
      line.append("text").attr("class", "row-value").attr("x", two ? 0 : width)
        .attr("y", two ? 28 : 12).attr("text-anchor", two ? "start" : "end").text(value);
      options.mark(line.append("g").attr("transform", `translate(0,${pitch - 21})`), row, x);
    });
  });
}
