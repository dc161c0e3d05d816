// Shows the useful and padded tokens of each rank, which are what the ranks work on.

/** Returns {name, useful, padded} of each rank, as means over the steady steps. */
function tokensOfRanks(series) {
  return series.useful.map((useful, rank) => {
    const mean = d3.mean(steady(series, useful));
    return {name: "rank " + rank, useful: mean,
      padded: d3.mean(steady(series, series.padded[rank]))};
  });
}

function tokensSentence(series, ranks) {
  const useful = d3.sum(ranks, (rank) => rank.useful);
  const padded = d3.sum(ranks, (rank) => rank.padded);
  const [low, high] = d3.extent(ranks, (rank) => rank.padded);
  return `Tokens of each rank, policy ${shortName(series.policy)}: ${count(useful)} useful of ` +
    `${count(padded)} padded tokens a step, ${percent(1 - useful / padded)} padding; a rank ` +
    `computes ${count(low)} to ${count(high)} tokens.`;
}

function drawTokens(page) {
  const pairing = page.pairing;
  const all = pairing.series.filter((series) => series.useful && series.useful.length > 0);
  if (all.length === 0) {
    return;
  }
  const card = section(page, "tokens", "Tokens of each rank",
    "Padding is computed like the rest and thrown away. Mean of the steps after the warm-up.");
  const few = all.length <= 4;
  if (!few) {
    drawPairing(card, pairing);
  }
  legend(card, [["useful", "useful tokens"], ["padding", "padding"]]);
  const grid = el("div", {class: "pair"});
  card.append(grid);
  const update = () => {
    const shown = few ? all : pairing.pair().map(({series}) => series);
    grid.replaceChildren();
    const most = d3.max(shown, (series) => d3.max(tokensOfRanks(series), (rank) => rank.padded));
    shown.forEach((series) => drawTokensOf(grid, series, most));
  };
  update();
  pairing.onChange(few ? () => {} : update);
  tableOf(card, "The tokens as a table", [
    {name: "policy", text: true, value: (row) => shortName(row.policy)},
    {name: "rank", value: (row) => row.rank},
    {name: "useful tokens a step", value: (row) => row.useful.toFixed(1)},
    {name: "padded tokens a step", value: (row) => row.padded.toFixed(1)},
    {name: "padding", value: (row) => percent(1 - row.useful / row.padded)},
  ], all.flatMap((series) => tokensOfRanks(series).map((row, rank) =>
    Object.assign({policy: series.policy, rank}, row))));
}

function drawTokensOf(grid, series, most) {
  const ranks = tokensOfRanks(series);
  const padding = 1 - d3.sum(ranks, (rank) => rank.useful) / d3.sum(ranks, (rank) => rank.padded);
  const pitch = ranks.length <= 8 ? 24 : ranks.length <= 16 ? 16 : 9;
  const box = figure(grid, shortName(series.policy), `${percent(padding)} padding`);
  chart(box, {height: ranks.length * pitch + 40, margin: {top: 2, left: 58},
    label: tokensSentence(series, ranks)}, (g, width, height) => {
    const x = d3.scaleLinear([0, most], [0, width]).nice(4);
    g.append("g").attr("class", "axis grid vertical").attr("transform", `translate(0,${height})`)
      .call(d3.axisBottom(x).ticks(4).tickSize(-height)).call(keepLabelsInside, x, width);
    g.append("text").attr("class", "axis-title").attr("x", width).attr("y", height + 31)
      .attr("text-anchor", "end").text("tokens a step");
    ranks.forEach((rank, i) => {
      const line = g.append("g").attr("transform", `translate(0,${i * pitch + 2})`);
      const tall = pitch - (pitch > 10 ? 6 : 2);
      line.append("rect").attr("class", "padding").attr("x", x(rank.useful)).attr("height", tall)
        .attr("width", Math.max(0, x(rank.padded) - x(rank.useful)));
      line.append("rect").attr("class", "useful").attr("height", tall)
        .attr("width", x(rank.useful));
      if (pitch > 10 || i % 4 === 0) {
        line.append("text").attr("class", "row-name").attr("x", -8).attr("y", tall / 2)
          .attr("dy", "0.35em").attr("text-anchor", "end").text(rank.name);
      }
      line.append("rect").attr("class", "catch").attr("height", pitch).attr("width", width)
        .on("pointermove", () => showTip([`${shortName(series.policy)}, ${rank.name}`,
          `${count(rank.useful)} useful tokens a step`, `${count(rank.padded)} with padding`,
          `${percent(1 - rank.useful / rank.padded)} padding`], d3.event.clientX, d3.event.clientY))
        .on("pointerleave", () => showTip(null));
    });
  });
}
