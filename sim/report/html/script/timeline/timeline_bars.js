// Draws the bars of a timeline: ranks one below the other, each with a lane of compute and one of
// communication.

const lanesKept = new WeakMap();
const kindClasses = ["data", "forward", "backward", "optimizer", "other"];

/** Returns the lanes' heights in pixels, which are smaller with more ranks. */
function laneSizes(ranks) {
  if (ranks <= 4) {
    return {compute: 26, transfer: 16, gap: 16};
  }
  return ranks <= 8 ? {compute: 20, transfer: 13, gap: 12}
    : ranks <= 16 ? {compute: 14, transfer: 9, gap: 7} : {compute: 10, transfer: 6, gap: 5};
}

/** Returns the bars that keyboard and pointer find: [rank][0 compute, 1 transfer][bar]. */
function lanesOf(timeline) {
  if (!lanesKept.has(timeline)) {
    lanesKept.set(timeline, makeLanes(timeline));
  }
  return lanesKept.get(timeline);
}

function makeLanes(timeline) {
  return timeline.ranks.map((rank, r) => {
    const bar = (what) => ([start, duration, kind]) => ({rank: r, lane: 0, start,
      end: start + duration, what: what || kindNames[kind]});
    const compute = [...rank.compute.map(bar()), ...rank.exposed.map(bar("exposed communication")),
      ...rank.waiting.map(bar("waiting for a slower rank"))];
    compute.sort((a, b) => a.start - b.start);
    const transfer = rank.buckets.map((entry) =>
      ({rank: r, lane: 1, start: entry[1], end: entry[2], entry}));
    transfer.sort((a, b) => a.start - b.start);
    return [compute, transfer];
  });
}

class TimelineBars {
  /** The bars are drawn into `g`, whose clip path cuts what zoom pushes out. */
  constructor(g, ranks) {
    this.sizes = laneSizes(ranks);
    this.pitch = this.sizes.compute + this.sizes.transfer + 2 + this.sizes.gap;
    this.height = ranks * this.pitch;
    this.shade = g.append("g");
    this.compute = g.append("g");
    this.ready = g.append("path").attr("class", "ready");
    this.transfer = g.append("g");
    this.words = g.append("g").attr("class", "bar-words");
    this.marked = g.append("g").attr("class", "marked");
  }

  top(rank, lane) {
    return rank * this.pitch + this.sizes.gap / 2 + (lane === 0 ? 0 : this.sizes.compute + 2);
  }

  laneHeight(lane) {
    return lane === 0 ? this.sizes.compute : this.sizes.transfer;
  }

  draw(timeline, x) {
    const rows = timeline.ranks.map((rank, r) => ({rank, r}));
    const spans = (what, name) => rows.flatMap(({rank, r}) =>
      rank[what].map((span) => ({r, start: span[0], length: span[1],
        name: name || kindClasses[span[2]]})));
    this.place(this.shade, spans("exposed", "shade"), x,
      (bar) => bar.r * this.pitch + 1, this.pitch - 2, false);
    const compute = [...spans("compute"), ...spans("exposed", "exposed"),
      ...spans("waiting", "waiting")];
    this.place(this.compute, compute, x, (bar) => this.top(bar.r, 0), this.sizes.compute, false);
    const transfers = rows.flatMap(({rank, r}) => rank.buckets.map(([, start, end, bucket]) =>
      ({r, start, length: end - start, name: bucket < 0 ? "other-transfer" : "transfer", bucket})));
    this.place(this.transfer, transfers, x, (bar) => this.top(bar.r, 1), this.sizes.transfer, true);
    this.ready.attr("d", rows.map(({rank, r}) => this.readyTicks(rank, r, x)).join(""));
    this.drawWords(timeline, compute, transfers, x);
    this.mark(null);
  }

  /** Returns ticks below the compute when buckets are ready; none if they would run together. */
  readyTicks(rank, r, x) {
    const [first, last] = d3.extent(rank.buckets, ([ready]) => x(ready));
    if (last - first < 3 * rank.buckets.length) {
      return "";
    }
    const top = this.top(r, 0) + this.sizes.compute - 4;
    return rank.buckets.map(([ready]) => `M${x(ready).toFixed(1)},${top}v5`).join("");
  }

  /** Draws one rectangle per bar, with a pixel between neighbours if there is room. */
  place(g, bars, x, top, height, gaps) {
    g.selectAll("rect").data(bars).join("rect")
      .attr("class", (bar) => "bar " + bar.name)
      .attr("x", (bar) => x(bar.start).toFixed(2))
      .attr("y", top)
      .attr("height", height)
      .attr("width", (bar) => {
        const width = x(bar.start + bar.length) - x(bar.start);
        return Math.max(0.4, gaps && width > 4 ? width - 1 : width).toFixed(2);
      });
  }

  /** Writes names inside the bars that have room for them. */
  drawWords(timeline, compute, transfers, x) {
    const [from, to] = x.range();
    const labelled = (bar, lane, text) => {
      const left = Math.max(from, x(bar.start));
      const room = Math.min(to, x(bar.start + bar.length)) - left;
      return {x: left + room / 2, y: this.top(bar.r, lane) + this.laneHeight(lane) / 2,
        text, name: bar.name, fits: room > text.length * 6.4 + 8};
    };
    const words = this.sizes.compute < 14 ? [] : compute
      .map((bar) => labelled(bar, 0, bar.name)).filter((word) => word.fits);
    if (this.sizes.transfer >= 13) {
      for (const bar of transfers.filter((transfer) => transfer.bucket >= 0)) {
        const long = labelled(bar, 1, bytes(timeline.buckets[bar.bucket][0]));
        const short = labelled(bar, 1, String(bar.bucket + 1));
        short.fits = labelled(bar, 1, String(timeline.buckets.length)).fits;
        words.push(...[long.fits ? long : short].filter((word) => word.fits));
      }
    }
    this.words.selectAll("text").data(words).join("text")
      .attr("class", (word) => word.name).attr("x", (word) => word.x).attr("y", (word) => word.y)
      .attr("dy", "0.35em").text((word) => word.text);
  }

  /** Outlines a bar; for a bucket, its transfer on every rank and when each rank was ready. */
  mark(bar, timeline, x) {
    const boxes = !bar ? [] : bar.lane === 0 ? [bar]
      : partsOf(timeline, bar.entry).map(([rank, [ready, start, end]]) =>
        ({rank, lane: 1, start, end, ready}));
    this.marked.selectAll("rect").data(boxes).join("rect")
      .attr("x", (box) => x(box.start) - 1).attr("y", (box) => this.top(box.rank, box.lane) - 1)
      .attr("width", (box) => Math.max(3, x(box.end) - x(box.start) + 2))
      .attr("height", (box) => this.laneHeight(box.lane) + 2).attr("rx", 2);
    this.marked.selectAll("path").data(boxes.filter((box) => box.lane === 1)).join("path")
      .attr("d", (box) => `M${x(box.ready)},${this.top(box.rank, 0) + this.sizes.compute / 2}` +
        `V${this.top(box.rank, 1) + this.sizes.transfer / 2}H${x(box.start)}`);
    this.marked.selectAll("circle").data(boxes.filter((box) => box.lane === 1)).join("circle")
      .attr("cx", (box) => x(box.ready)).attr("r", 3)
      .attr("cy", (box) => this.top(box.rank, 0) + this.sizes.compute / 2);
  }
}
