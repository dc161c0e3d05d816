// Puts a timeline into words, for the pointer, the keyboard, the cursor and the screen reader.

const kindNames = ["data", "forward", "backward", "optimizer", "other work"];

function sumOf(spans) {
  return d3.sum(spans, (span) => span[1]);
}

/** Returns the mean over the ranks of how long something took, in microseconds. */
function meanOverRanks(timeline, what) {
  return d3.mean(timeline.ranks, (rank) => sumOf(rank[what])) || 0;
}

/** Returns when each rank's backward ends, in microseconds. */
function backwardEnds(timeline) {
  return timeline.ranks.map((rank) =>
    d3.max(rank.compute.filter((span) => span[2] === 2), (span) => span[0] + span[1]) || 0);
}

/** Returns the number of the rank in a row; when there are many ranks only some are drawn. */
function rankNumber(timeline, row) {
  const {rank} = timeline.ranks[row];
  return isNumber(rank) ? rank : row;
}

/** What is reduced together: a bucket of DDP, or a unit of sharded training. */
function bucketWord(timeline) {
  return timeline.units ? "unit" : "bucket";
}

function timelineSentence(timeline) {
  const ends = backwardEnds(timeline);
  const last = rankNumber(timeline, ends.indexOf(d3.max(ends)));
  return `Timeline of step ${timeline.step}, policy ${shortName(timeline.policy)}, ` +
    `${shortName(timeline.label)}: ${usAsMs(timeline.shown_us)} on ` +
    `${plural(timeline.ranks.length, "rank")} with ${plural(timeline.buckets.length, bucketWord(timeline))}; ` +
    `rank ${last} ends its backward last, after ${usAsMs(ends[last])}; a rank idles ` +
    `${usAsMs(meanOverRanks(timeline, "exposed"))} for transfers and ` +
    `${usAsMs(meanOverRanks(timeline, "waiting"))} for slower ranks, on average.`;
}

function computeLines(timeline, bar) {
  return [`Rank ${rankNumber(timeline, bar.rank)}: ${bar.what}`,
    `${usAsMs(bar.start)} to ${usAsMs(bar.end)}, ${usAsMs(bar.end - bar.start)} long`];
}

/** Returns [row, entry] of one transfer for each rank that takes part. */
function partsOf(timeline, transfer) {
  return timeline.ranks.map((rank, row) => [row, rank.buckets.find((entry) =>
    entry[3] === transfer[3] && entry[1] === transfer[1])]).filter(([, entry]) => entry);
}

/** Returns the name of a transfer, which moves a bucket or is another, named collective. */
function transferName(timeline, [, , , number, name]) {
  if (number < 0) {
    return shortName(name || "collective");
  }
  const [size, tensors] = timeline.buckets[number];
  return `${timeline.units ? "Unit" : "Bucket"} ${number + 1} of ${timeline.buckets.length}: ${bytes(size)}, ` +
    plural(tensors, "tensor");
}

function transferLines(timeline, transfer) {
  const parts = partsOf(timeline, transfer);
  const [first, last] = d3.extent(parts, ([, entry]) => entry[0]);
  const [late] = parts.find(([, entry]) => entry[0] === last);
  const [, start, end] = transfer;
  const lines = [transferName(timeline, transfer), `ready at ${usAsMs(first)}` +
    (last - first >= 0.1 ? `, on the last rank (${rankNumber(timeline, late)}) at ${usAsMs(last)}`
      : parts.length > 1 ? " on all ranks" : ""),
  `transfer ${usAsMs(start)} to ${usAsMs(end)}, ${usAsMs(end - start)} long`];
  if (start - last > 0.5) {
    lines.push(`queued ${usAsMs(start - last)} behind other transfers`);
  }
  return lines;
}

/** Says what runs at a time: "34.20 ms: 8 ranks in backward; bucket 12 of 82 in transfer". */
function momentText(timeline, us) {
  const doing = new Map();
  for (const rank of timeline.ranks) {
    const what = rankDoes(rank, us);
    doing.set(what, (doing.get(what) || 0) + 1);
  }
  const ranks = [...doing].map(([what, number]) => `${plural(number, "rank")} ${what}`);
  const moving = new Set(timeline.ranks.flatMap((rank) => rank.buckets
    .filter(([, start, end]) => start <= us && us < end).map((entry) => entry[3])));
  const buckets = [...moving].filter((number) => number >= 0).sort(d3.ascending)
    .map((number) => number + 1);
  const transfer = moving.size === 0 ? "no transfer" : buckets.length === 0 ? "a transfer"
    : `${bucketWord(timeline)} ${buckets.join(", ")} of ${timeline.buckets.length} in transfer`;
  return `${usAsMs(us)}: ${ranks.join(", ")}; ${transfer}`;
}

function rankDoes(rank, us) {
  const within = (span) => span[0] <= us && us < span[0] + span[1];
  const span = rank.compute.find(within);
  if (span) {
    return "in " + kindNames[span[2]];
  }
  if (rank.exposed.some(within)) {
    return "idle for a transfer";
  }
  if (rank.waiting.some(within)) {
    return "waiting for another rank";
  }
  const last = rank.compute[rank.compute.length - 1];
  return last && us >= last[0] + last[1] ? "done" : "idle";
}
