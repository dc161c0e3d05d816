// Formats numbers and names in one place, so that a figure reads the same everywhere.

const grouped = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const longestName = 60;

/** Makes a name from outside safe to show on one line: no control or direction characters. */
function plainText(text) {
  const controls = /[\u0000-\u001f\u007f-\u009f]/g;
  const invisible = /[\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
  return String(text).replace(controls, "\ufffd").replace(invisible, "\ufffd");
}

/** Cuts a name in the middle when it is longer than `limit` characters. */
function shortName(text, limit = longestName) {
  const letters = Array.from(plainText(text));
  if (letters.length <= limit) {
    return letters.join("");
  }
  const head = Math.ceil((limit - 1) * 0.7);
  const tail = limit - 1 - head;
  return letters.slice(0, head).join("") + "…" + letters.slice(letters.length - tail).join("");
}

function isNumber(value) {
  return typeof value === "number" && isFinite(value);
}

/** Formats milliseconds to four or five digits: "123.2", "33.14", "4.481". */
function msDigits(ms) {
  const size = Math.abs(ms);
  return ms.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
}

function ms(value) {
  return value === 0 ? "0 ms" : isNumber(value) ? msDigits(value) + " ms" : "–";
}

/** Formats both ends of an interval to three digits or more: "15.1–35.9 ms". */
function interval([low, high]) {
  const digits = (value) => value >= 100 ? value.toFixed(0) : value.toPrecision(3);
  return `${digits(low)}–${digits(high)} ms`;
}

function usAsMs(us) {
  return ms(us / 1000);
}

function percent(fraction, digits = 1) {
  return isNumber(fraction) ? (fraction * 100).toFixed(digits) + " %" : "–";
}

function signedPercent(fraction) {
  return isNumber(fraction) ? (fraction < 0 ? "" : "+") + percent(fraction) : "–";
}

function count(value) {
  return isNumber(value) ? grouped.format(value) : "–";
}

/** Formats bytes: "25 MiB", "1.5 GiB". */
function bytes(value) {
  if (!isNumber(value)) {
    return "–";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return Number(value.toPrecision(value >= 1000 ? 4 : 3)) + " " + units[unit];
}

/** Formats MiB: "43.9 GiB". */
function memoryText(mib) {
  return bytes(mib * 1024 * 1024);
}

function plural(number, word) {
  return count(number) + " " + word + (number === 1 ? "" : "s");
}

/** How the figures of a column are written, by the name of the column's format. */
const figureFormats = {
  milliseconds: (value) => value.toFixed(3),
  whole: count,
  memory: memoryText,
  tenths: (value) => value.toFixed(1),
  percent: (value) => percent(value),
  signed_percent: signedPercent,
  signed_percent_interval: (ends) => ends ? ends.map(signedPercent).join(" to ") : "",
  interval: (ends) => ends ? ends.map((end) => end.toFixed(3)).join(" – ") : "",
};
