'use strict';

/** Starts the page: says which command made it. */
function startPage() {
  const data = JSON.parse(document.getElementById('stepsim-data').textContent);
  document.title = `${data.scenario.name}: stepsim ${data.kind}`;
  const heading = document.createElement('h1');
  heading.textContent = document.title;
  document.getElementById('page').append(heading);
}

document.addEventListener('DOMContentLoaded', startPage);
