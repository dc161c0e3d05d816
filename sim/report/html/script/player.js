// A cursor that sweeps over a step, with a play button and a time slider.

const sweepSeconds = 8;
const stillSteps = 16;  // jumps in a sweep, for readers who asked for less motion

class Player {
  constructor(card, timeline, selection) {
    this.timeline = timeline;
    this.selection = selection;
    this.button = el("button", {type: "button", class: "play", onclick: () => this.toggle()});
    this.slider = el("input", {type: "range", min: 0, max: 1000, value: 0, "aria-label": "Time",
      oninput: () => this.seek(this.slider.value / 1000)});
    this.words = el("output", {class: "moment"});
    card.append(el("div", {class: "player"}, this.button, this.slider, this.words));
    this.share = null;  // the cursor's place on the time scale, 0 to 1
    this.stop();
    this.tell();
    selection.onChange(() => this.moved());
  }

  playing() {
    return this.timer !== undefined && this.timer !== null;
  }

  toggle() {
    if (this.playing()) {
      this.stop();
      return;
    }
    this.button.textContent = "Pause";
    if (this.share === null || this.share >= this.endShare()) {
      this.seek(0);
    }
    if (prefersStill()) {
      this.timer = setInterval(() => this.advance(1 / stillSteps), 900);
      return;
    }
    let before = performance.now();
    const frame = (now) => {
      this.advance((now - before) / 1000 / sweepSeconds);
      before = now;
      if (this.playing()) {
        this.timer = requestAnimationFrame(frame);
      }
    };
    this.timer = requestAnimationFrame(frame);
  }

  stop() {
    cancelAnimationFrame(this.timer);
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }

  endShare() {
    const [from, to] = this.selection.timeSpan();
    return (this.selection.current().shown_us - from) / (to - from);
  }

  moment() {
    const [from, to] = this.selection.timeSpan();
    return from + this.share * (to - from);
  }

  advance(share) {
    const end = this.endShare();
    this.seek(Math.min(end, this.share + share));
    if (this.share >= end) {
      this.stop();
    }
  }

  seek(share) {
    this.share = share;
    this.slider.value = Math.round(share * 1000);
    this.timeline.setMoment(this.moment());
    this.tell();
  }

  moved() {
    if (this.share !== null) {
      this.seek(Math.min(this.share, this.endShare()));
    }
  }

  tell() {
    const text = this.share === null ? "Play sweeps a cursor over the step and says what runs."
      : momentText(this.selection.current(), this.moment());
    this.words.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }
}
