// Draws one step on all ranks: zoom, pan, hover, keyboard, and the lines where steps end.

class Timeline {
  constructor(card, selection) {
    this.selection = selection;
    this.view = d3.zoomIdentity;
    this.selected = null;  // the bar that the keyboard is on: {rank, lane, at}
    this.moment = null;    // the cursor's time in microseconds
    this.box = el("div", {class: "timeline", tabindex: "0", role: "group",
      "aria-label": "Timeline. Arrow keys go from bar to bar, plus and minus zoom, 0 shows all."});
    card.append(this.box);
    this.svg = d3.select(this.box).append("svg").attr("role", "img");
    this.svg.append("defs").append("clipPath").attr("id", "timeline-clip").append("rect");
    this.zoom = d3.zoom().filter(() => zoomFilter(d3.event, this.view.k))
      .on("zoom", () => {
        this.view = d3.event.transform;
        this.draw();
      });
    this.build();
    this.svg.call(this.zoom).on("dblclick.zoom", null);
    this.box.addEventListener("pointermove", (event) => this.hover(event));
    this.box.addEventListener("pointerleave", () => this.point(null));
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("blur", () => this.unselect());
    new ResizeObserver(() => this.resize()).observe(this.box);
    selection.onChange((what) => this.selectionChanged(what));
  }

  /** Builds everything that depends on the number of ranks or the width. */
  build() {
    const ranks = this.selection.current().ranks.length;
    this.width = Math.max(260, this.box.clientWidth);
    this.left = this.width < 520 ? 30 : 62;
    this.inner = this.width - this.left - 22;
    this.svg.selectAll("g").remove();
    const g = this.svg.append("g").attr("transform", `translate(${this.left},24)`);
    this.axis = g.append("g").attr("class", "axis grid vertical");
    this.names = g.append("g").attr("class", "rank-names");
    this.clipped = g.append("g").attr("clip-path", "url(#timeline-clip)");
    this.bars = new TimelineBars(this.clipped, ranks);
    this.ends = g.append("g").attr("class", "ends");
    this.cursor = this.clipped.append("line").attr("class", "cursor").attr("y1", 0);
    const height = this.bars.height;
    this.height = height;
    const flags = d3.max([...this.selection.byPolicy.values()], (settings) =>
      settings.filter(roleOf).length);
    const whole = height + 24 + 8 + 15 * (1 + flags);
    this.svg.attr("width", this.width).attr("height", whole)
      .attr("viewBox", `0 0 ${this.width} ${whole}`);
    this.svg.select("clipPath rect").attr("x", 0).attr("y", 0).attr("width", this.inner)
      .attr("height", height);
    const extent = [[0, 0], [this.inner, height]];
    this.zoom.extent(extent).translateExtent(extent).scaleExtent([1, 2000]);
    this.draw();
  }

  nameRanks() {
    const ranks = this.selection.current().ranks.length;
    const each = Math.max(1, Math.ceil(14 / this.bars.pitch));
    this.names.selectAll("text").data(d3.range(0, ranks, each)).join("text")
      .attr("x", -8).attr("y", (row) => this.bars.top(row, 0) + this.bars.sizes.compute / 2)
      .attr("dy", "0.35em").attr("text-anchor", "end")
      .text((row) => (this.left < 40 ? "" : "rank ") + rankNumber(this.selection.current(), row));
  }

  resize() {
    if (Math.abs(Math.max(260, this.box.clientWidth) - this.width) > 1) {
      this.svg.call(this.zoom.transform, d3.zoomIdentity);
      this.build();
    }
  }

  scale() {
    return this.view.rescaleX(this.wholeScale());
  }

  wholeScale() {
    const [from, to] = this.selection.timeSpan();
    return d3.scaleLinear([from, to + 0.015 * (to - from)], [0, this.inner]);
  }

  draw() {
    const timeline = this.selection.current();
    const x = this.scale();
    this.svg.attr("aria-label", timelineSentence(timeline));
    this.axis.call(d3.axisTop(x).ticks(Math.max(3, Math.floor(this.inner / 90)))
      .tickSize(-this.height).tickFormat((us) => timeTick(us, x)));
    this.nameRanks();
    this.bars.draw(timeline, x);
    this.drawEnds(timeline, x);
    this.drawCursor(x);
    this.remark(x);
  }

  /** Marks where this step ends, and where the default's and the best setting's step would end. */
  drawEnds(timeline, x) {
    const settings = this.selection.settings();
    const ends = [{timeline, name: "now", words: `step: ${usAsMs(timeline.shown_us)}`}];
    for (const other of settings) {
      const role = roleOf(other);
      if (other !== timeline && role) {
        ends.push({timeline: other, name: "other",
          words: `${role}, ${shortName(other.label, 20)}: ${usAsMs(other.shown_us)}`});
      }
    }
    const seen = ends.filter((end) => {
      const at = x(end.timeline.shown_us);
      return at >= -0.5 && at <= this.inner + 0.5;
    });
    const lines = this.ends.selectAll("g").data(seen).join((enter) => {
      const g = enter.append("g");
      g.append("line");
      g.append("text");
      return g;
    });
    lines.attr("class", (end) => "end " + end.name)
      .attr("transform", (end) => `translate(${x(end.timeline.shown_us).toFixed(2)},0)`);
    lines.select("line").attr("y1", 0).attr("y2", (end, i) => this.height + 4 + i * 15);
    lines.select("text").attr("y", (end, i) => this.height + 14 + i * 15)
      .attr("text-anchor", (end) => x(end.timeline.shown_us) > this.inner / 2 ? "end" : "start")
      .attr("dx", (end) => x(end.timeline.shown_us) > this.inner / 2 ? -4 : 4)
      .text((end) => end.words);
  }

  /** Puts the cursor at a time; null removes it. */
  setMoment(us) {
    this.moment = us;
    this.drawCursor(this.scale());
  }

  drawCursor(x) {
    const at = this.moment === null ? -10 : x(this.moment);
    this.cursor.attr("x1", at).attr("x2", at).attr("y2", this.height);
  }

  selectionChanged(what) {
    this.selected = null;
    this.point(null);
    if (this.selection.current().ranks.length * this.bars.pitch !== this.height) {
      this.build();
    }
    // Bars glide to their new places only when the slider moves: zoom and pan stay immediate.
    this.box.classList.toggle("gliding", what === "index" && !prefersStill());
    clearTimeout(this.gliding);
    this.gliding = setTimeout(() => this.box.classList.remove("gliding"), 450);
    this.draw();
  }

  zoomBy(factor) {
    this.svg.call(this.zoom.scaleBy, factor);
  }

  fit() {
    this.svg.call(this.zoom.transform, d3.zoomIdentity);
  }

  /** Returns the bar under a point of the window; null between bars. */
  barAt(clientX, clientY) {
    const box = this.svg.node().getBoundingClientRect();
    const x = this.scale();
    const us = x.invert(clientX - box.left - this.left);
    const y = clientY - box.top - 24;
    const rank = Math.floor(y / this.bars.pitch);
    const lanes = lanesOf(this.selection.current())[rank];
    if (!lanes || us < x.domain()[0] || us > x.domain()[1]) {
      return null;
    }
    const lane = y < this.bars.top(rank, 1) ? 0 : 1;
    const slack = 2 * (x.invert(1) - x.invert(0));  // two pixels, for thin bars
    const near = lanes[lane].filter((bar) => bar.start - slack <= us && us < bar.end + slack);
    return near.find((bar) => bar.start <= us && us < bar.end) || near[0] || null;
  }

  hover(event) {
    this.point(event.buttons ? null : this.barAt(event.clientX, event.clientY), event);
  }

  linesOf(bar) {
    const timeline = this.selection.current();
    return bar.lane === 0 ? computeLines(timeline, bar) : transferLines(timeline, bar.entry);
  }

  point(bar, event) {
    if (!bar) {
      showTip(null);
      this.remark(this.scale());
      return;
    }
    this.bars.mark(bar, this.selection.current(), this.scale());
    showTip(this.linesOf(bar), event.clientX, event.clientY);
  }

  selectedBar() {
    const at = this.selected;
    return at ? lanesOf(this.selection.current())[at.rank][at.lane][at.at] : null;
  }

  remark(x) {
    this.bars.mark(this.selectedBar(), this.selection.current(), x);
  }

  unselect() {
    this.selected = null;
    this.point(null);
  }

  key(event) {
    const moves = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (moves[event.key]) {
      this.step(...moves[event.key]);
    } else if (event.key === "+" || event.key === "=") {
      this.zoomBy(1.6);
    } else if (event.key === "-") {
      this.zoomBy(1 / 1.6);
    } else if (event.key === "0") {
      this.fit();
    } else if (event.key === "Escape") {
      this.unselect();
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Moves to another lane or along one, then shows and speaks the bar there. */
  step(down, right) {
    const lanes = lanesOf(this.selection.current()).flat();
    const from = this.selectedBar();
    const wanted = from ? from.rank * 2 + from.lane + down : 0;
    const row = Math.max(0, Math.min(lanes.length - 1, wanted));
    const lane = lanes[row];
    if (!lane || lane.length === 0) {
      return;
    }
    let at = from ? this.selected.at + right : 0;
    if (from && down !== 0) {
      const middle = (from.start + from.end) / 2;
      at = d3.scan(lane, (a, b) =>
        Math.abs((a.start + a.end) / 2 - middle) - Math.abs((b.start + b.end) / 2 - middle));
    }
    at = Math.max(0, Math.min(lane.length - 1, at));
    this.selected = {rank: Math.floor(row / 2), lane: row % 2, at};
    this.reveal(lane[at]);
  }

  /** Pans to the bar, marks it and says what it is. */
  reveal(bar) {
    const x = this.scale();
    if (x(bar.end) < 0 || x(bar.start) > this.inner) {
      this.svg.call(this.zoom.translateTo, this.wholeScale()((bar.start + bar.end) / 2), 0);
    }
    const now = this.scale();
    this.bars.mark(bar, this.selection.current(), now);
    const box = this.svg.node().getBoundingClientRect();
    const lines = this.linesOf(bar);
    showTip(lines, box.left + this.left + Math.max(0, now(bar.start)),
      box.top + 24 + this.bars.top(bar.rank, bar.lane));
    speak(lines.join(". "));
  }
}

/** Lets the wheel zoom with Ctrl or Cmd only, so that the page still scrolls; dragging pans. */
function zoomFilter(event, zoomed) {
  if (event.type === "wheel") {
    return event.ctrlKey || event.metaKey;
  }
  return !event.button && (zoomed > 1 || event.type === "touchstart");
}

function timeTick(us, x) {
  const span = x.domain()[1] - x.domain()[0];
  return span < 2000 ? d3.format(",.1~f")(us) + " µs" : d3.format(",.3~f")(us / 1000) + " ms";
}
