// Chooses the two policies that the token and step pictures compare: a usual and a better one.

class Pairing {
  constructor(page) {
    this.series = page.data.series || [];
    const names = this.series.map((series) => series.policy);
    const choices = names.filter((name) => !isReference(page, name) && !isMisfit(page, name));
    const better = names.indexOf(names.includes(page.recommended) ? page.recommended : choices[0]);
    this.better = Math.max(0, better);
    // The first policy of a scenario is usually the one that people have now.
    this.usual = names.findIndex((name, i) => i !== this.better && choices.includes(name));
    this.listeners = [];
  }

  /** Returns [{series, role}], with the usual policy first when there are two. */
  pair() {
    const better = {series: this.series[this.better], role: "chosen"};
    return this.usual < 0 ? [better]
      : [{series: this.series[this.usual], role: "baseline"}, better];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  choose(which, index) {
    this[which] = index;
    this.listeners.forEach((listener) => listener());
  }
}

/** Adds two selects when there is something to choose; the selects of all cards change together. */
function drawPairing(card, pairing) {
  if (pairing.usual < 0) {
    return;
  }
  const names = pairing.series.map((series) => series.policy);
  const usual = choice("Compare", names, pairing.usual, (i) => pairing.choose("usual", i));
  const better = choice("with", names, pairing.better, (i) => pairing.choose("better", i));
  card.append(el("div", {class: "controls"}, usual, better));
  pairing.onChange(() => {
    usual.querySelector("select").selectedIndex = pairing.usual;
    better.querySelector("select").selectedIndex = pairing.better;
  });
}

/** Returns the values of the steady steps, which are those after the warm-up. */
function steady(series, values) {
  const kept = values.slice(series.warmup_steps || 0);
  return kept.length > 0 ? kept : values;
}
