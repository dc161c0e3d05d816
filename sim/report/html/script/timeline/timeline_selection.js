// Keeps which timeline is shown: the policy and the position of the slider. Charts listen to it.

class TimelineSelection {
  /** `caps` is true when the slider moves along bucket caps; one of them may be DDP's default. */
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
    this.spans = new Map();
  }

  /** Returns where the slider starts: at the scenario as it stands, else at DDP's default. */
  firstIndex() {
    const settings = this.settings();
    const found = ["own", "default", "best"].map((role) =>
      settings.findIndex((timeline) => timeline[role])).find((index) => index >= 0);
    return found || 0;
  }

  settings() {
    return this.byPolicy.get(this.policy);
  }

  current() {
    return this.settings()[this.index];
  }

  /**
   * Returns the time scale of the policy: from the first start of a rank to its longest step's end.
   * Settings that do not fit into memory may be many times longer: they count where one is shown.
   */
  timeSpan() {
    const misfit = this.current().out_of_memory;
    const key = `${misfit} ${this.policy}`;
    if (!this.spans.has(key)) {
      const all = this.settings().filter((timeline) => misfit || !timeline.out_of_memory);
      this.spans.set(key, [d3.min(all, (timeline) => d3.min(timeline.ranks, (rank) =>
        rank.compute.length > 0 ? Math.min(0, rank.compute[0][0]) : 0)),
      d3.max(all, (timeline) => timeline.shown_us)]);
    }
    return this.spans.get(key);
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

/** Returns what is special about a setting; most settings have nothing. */
function roleOf(timeline) {
  return timeline.best ? "best" : timeline.default ? "default" : timeline.own ? "as it stands" : "";
}

/** Moves a timeline's zero to the beginning of its step, when the last rank starts. */
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

/** True when all mean steps are equal to within 0.05 %, so that there is nothing to choose. */
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
