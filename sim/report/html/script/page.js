// Starts the page: reads the data and draws every part that there is data for.

/** Returns the policy that the page is about. */
function recommendedPolicy(data) {
  if (data.recommended) {
    return data.recommended;
  }
  const several = d3.nest().key((timeline) => timeline.policy).entries(data.timelines || [])
    .find(({values}) => values.length > 1);
  return several ? several.key : (data.timelines || []).concat(data.series || [])
    .map((entry) => entry.policy)[0];
}

function startPage() {
  const began = performance.now();
  const data = JSON.parse(document.getElementById("stepsim-data").textContent);
  glossary = data.glossary || {};
  const page = {data, kind: data.kind, main: document.getElementById("main"),
    contents: document.getElementById("contents"), recommended: recommendedPolicy(data)};
  if ((data.timelines || []).length > 0) {
    const [key] = sweptKeys(page);
    page.selection = new TimelineSelection(data.timelines, page.recommended,
      !key || key === "ddp.bucket_cap");
  }
  page.pairing = new Pairing(page);
  addPatterns();
  drawHead(page);
  drawValidation(page);
  drawAdvice(page);
  drawDiff(page);
  drawFinalists(page);
  drawFront(page);
  drawSpace(page);
  if (page.kind === "compare" || page.kind === "advise") {
    drawPolicies(page);
  }
  if (page.selection) {
    drawStage(page);
  }
  drawSweepCurve(page);
  drawTrainingCost(page);
  drawTokens(page);
  drawSeries(page);
  drawMemory(page);
  drawBlame(page);
  drawWarnings(page);
  drawAbout(page);
  openForPrint();
  document.documentElement.dataset.drawnMs = (performance.now() - began).toFixed(1);
  document.documentElement.dataset.readyMs = performance.now().toFixed(1);
}

/** Opens short tables and the scenario for printing; long tables stay closed. */
function openForPrint() {
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not(.long):not([open])")];
    opened.forEach((details) => {
      if (details.fill) {
        details.fill();
      }
      details.open = true;
    });
  });
  window.addEventListener("afterprint", () => opened.forEach((details) => {
    details.open = false;
  }));
}

document.addEventListener("DOMContentLoaded", startPage);
