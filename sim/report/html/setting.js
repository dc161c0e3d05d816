// Which timeline is shown: the policy and the place of the slider. Charts listen to it.

class Setting {
  /** `caps`: the settings are bucket caps, of which one is DDP's default. */
  constructor(timelines, recommended, caps) {
    this.caps = caps;
    this.byPolicy = new Map();
    for (const timeline of timelines) {
      startAtLastRank(timeline);
      timeline.default = timeline.default && caps;
      if (!this.byPolicy.has(timeline.policy)) {
        this.byPolicy.set(timeline.policy, []);
      }
      this.byPolicy.get(timeline.policy).push(timeline);
    }
    for (const settings of this.byPolicy.values()) {
      forgetBestOfEqual(settings);
    }
    this.policies = [...this.byPolicy.keys()];
    this.policy = this.byPolicy.has(recommended) ? recommended : this.policies[0];
    this.index = this.firstIndex();
    this.listeners = [];
  }

  /** Where the slider starts: the default, which most people have, or the scenario as it stands. */
  firstIndex() {
    const settings = this.settings();
    const found = ["default", "own", "best"].map((role) =>
      settings.findIndex((timeline) => timeline[role])).find((index) => index >= 0);
    return found || 0;
  }

  settings() {
    return this.byPolicy.get(this.policy);
  }

  current() {
    return this.settings()[this.index];
  }

  /** One time scale for all: from the first start of a rank to the end of the longest step. */
  timeSpan() {
    if (!this.span) {
      const all = [...this.byPolicy.values()].flat();
      this.span = [d3.min(all, (timeline) => d3.min(timeline.ranks, (rank) =>
        rank.compute.length > 0 ? Math.min(0, rank.compute[0][0]) : 0)),
      d3.max(all, (timeline) => timeline.shown_us)];
    }
    return this.span;
  }

  choosePolicy(policy) {
    this.policy = policy;
    this.index = this.firstIndex();
    this.tell("policy");
  }

  chooseIndex(index) {
    const next = Math.max(0, Math.min(this.settings().length - 1, index));
    if (next !== this.index) {
      this.index = next;
      this.tell("index");
    }
  }

  /** Calls `listener(what)` with "policy" or "index" after each change. */
  onChange(listener) {
    this.listeners.push(listener);
  }

  tell(what) {
    this.listeners.forEach((listener) => listener(what));
  }
}

/** What is special about a setting; empty for most. */
function roleOf(timeline) {
  return timeline.best ? "best" : timeline.default ? "default" : timeline.own ? "as it stands" : "";
}

/** Moves a timeline's zero to where its step begins: when the last rank starts. */
function startAtLastRank(timeline) {
  const end = d3.max(timeline.ranks, (rank) =>
    d3.max(rank.compute, ([start, duration]) => start + duration));
  const begin = Math.max(0, end - timeline.shown_us);
  if (!(begin > 0.1)) {
    return;
  }
  for (const rank of timeline.ranks) {
    for (const span of [...rank.compute, ...rank.exposed, ...rank.waiting]) {
      span[0] -= begin;
    }
    for (const entry of rank.buckets) {
      entry[0] -= begin;
      entry[1] -= begin;
      entry[2] -= begin;
    }
  }
}

/** Settings whose mean steps are the same to 0.05 %: nothing to choose among. */
function areEqual(settings) {
  const [low, high] = d3.extent(settings, (timeline) => timeline.mean_ms);
  return high - low < 5e-4 * low;
}

function forgetBestOfEqual(settings) {
  if (areEqual(settings)) {
    settings.forEach((timeline) => {
      timeline.best = false;
    });
  }
}
