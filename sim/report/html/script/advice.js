// Draws the table of `stepsim advise`: what runs now, and what another bucket cap, other batches or
// both would change.

function drawAdvice(page) {
  const {options} = page.data.result;
  if (page.kind !== "advise" || !options) {
    return;
  }
  const card = section(page, "advice", "What would be faster",
    "Gains are in useful tokens a second over what runs now, with their 90 % intervals.");
  const now = (row) => row.verdict === "now";
  const part = (name, member) => ({name, value: (row) => ms(row[member])});
  const name = {name: "train with", text: true,
    value: (row) => `${shortName(row.policy)}, ${shortName(row.setting)}`};
  const table = (label, columns) => card.append(el("div", {class: "scroll", tabindex: "0",
    role: "region", "aria-label": label}, tableBody([name, ...columns], options)));
  table("Table of what to train with", [
    {name: "verdict", text: true, value: (row) => row.verdict},
    {name: "gain", value: (row) => (now(row) ? "" : signedPercent(row.gain))},
    {name: "gain, 90 %",
      value: (row) => (now(row) ? "" : `${signedPercent(row.gain_interval90[0]).replace(" %", "")} to ` +
        signedPercent(row.gain_interval90[1]))},
    {name: "step ms", value: (row) => ms(row.step_ms)},
    {name: "90 % interval", value: (row) => interval(row.interval90_ms)},
    {name: "useful tokens/s", value: (row) => count(row.useful_tokens_per_s)},
    ...(options[0].tflops_per_rank === null ? [] : [
      {name: "TFLOP/s", value: (row) => String(Number(row.tflops_per_rank.toPrecision(3)))},
      ...(options[0].mfu === null ? [] : [
        {name: "MFU", value: (row) => `${(row.mfu * 100).toFixed(1)} %`}])]),
  ]);
  card.append(el("h3", {text: "Where a step's time goes, mean over the ranks"}));
  table("Table of where a step's time goes", [
    part("data", "data_ms"),
    part("forward", "forward_ms"),
    part("backward", "backward_ms"),
    {name: "exposed", value: (row) => ms(row.exposed_communication_ms - row.waiting_for_ranks_ms)},
    part("waiting", "waiting_for_ranks_ms"),
    part("optimizer", "optimizer_ms"),
  ]);
}
