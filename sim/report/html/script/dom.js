// The building blocks of the page. All text is set as textContent, so that it is never markup.

/** {word: meaning} of the words that tables have as headings; the page fills it. */
let glossary = {};

/** What a heading means: itself or without its unit; undefined where the glossary has no word. */
function meaningOf(heading) {
  const word = heading.toLowerCase();
  return glossary[word] || glossary[word.replace(/ (ms|mib|s)$/, "")];
}

/** Makes an element with attributes; its children are nodes or text. */
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") {
      node.textContent = value;
    } else if (key.startsWith("on")) {
      node.addEventListener(key.slice(2), value);
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Adds a card to the page, with a heading and a sentence on how to read it. */
function section(page, id, title, lead) {
  const node = el("section", {id, class: "card", "aria-labelledby": id + "-title"},
    el("h2", {id: id + "-title", text: title}),
    lead ? el("p", {class: "lead", text: lead}) : null);
  page.main.append(node);
  page.contents.append(el("a", {href: "#" + id, text: title}));
  return node;
}

/** Adds a figure with a caption; returns the box that the chart goes into. */
function figure(parent, title, note) {
  const box = el("div", {class: "picture"});
  parent.append(el("figure", {},
    el("figcaption", {}, el("strong", {text: title}), note ? el("span", {text: " " + note}) : null),
    box));
  return box;
}

/**
 * Adds a table that opens on demand and is filled then. Columns are {name, value(row), text}; a
 * text column is left-aligned. Tables of more than 60 rows stay closed on paper.
 */
function tableOf(parent, title, columns, rows) {
  const box = el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": title});
  const details = el("details", {class: rows.length > 60 ? "long" : null},
    el("summary", {text: title}), box);
  const fill = () => {
    if (!box.firstChild) {
      box.append(tableBody(columns, rows));
    }
  };
  details.addEventListener("toggle", fill);
  details.fill = fill;
  parent.append(details);
  return details;
}

function tableBody(columns, rows) {
  const head = el("tr");
  for (const column of columns) {
    const meaning = meaningOf(column.name);
    const classes = [column.text ? "" : "number", meaning ? "explained" : ""].join(" ").trim();
    head.append(el("th", {scope: "col", class: classes || null, title: meaning, text: column.name}));
  }
  const body = el("tbody");
  for (const row of rows) {
    const line = el("tr");
    columns.forEach((column, i) => {
      const value = String(column.value(row));
      line.append(i === 0 && column.text ? el("th", {scope: "row", text: value})
        : el("td", {class: column.text ? null : "number", text: value}));
    });
    body.append(line);
  }
  return el("table", {}, el("thead", {}, head), body);
}

/** Makes a labelled select; `change` is called with the chosen index. */
function choice(label, names, chosen, change) {
  const select = el("select", {onchange: () => change(select.selectedIndex)});
  names.forEach((name, i) => {
    select.append(el("option", {value: i, selected: i === chosen, text: shortName(name)}));
  });
  return el("label", {class: "choice"}, el("span", {text: label}), select);
}

/** Adds a legend of swatches; every entry is [class, words]. */
function legend(parent, entries) {
  const list = el("ul", {class: "legend", "aria-label": "Legend"});
  for (const [name, words] of entries) {
    const swatch = d3.create("svg").attr("width", 22).attr("height", 12)
      .attr("aria-hidden", "true");
    if (name.startsWith("line-")) {
      swatch.append("line").attr("x1", 0).attr("x2", 22).attr("y1", 6).attr("y2", 6);
      swatch.attr("class", name.slice(5) + " stroke");
    } else {
      swatch.append("rect").attr("width", 22).attr("height", 12).attr("rx", 2).attr("class", name);
    }
    list.append(el("li", {}, swatch.node(), el("span", {text: words})));
  }
  parent.append(list);
  return list;
}

/** Shows lines of text beside a point of the window; without lines it hides the tip. */
function showTip(lines, x, y) {
  const tip = document.getElementById("tip");
  tip.hidden = !lines || lines.length === 0;
  if (tip.hidden) {
    return;
  }
  tip.replaceChildren(...lines.map((line, i) => el(i === 0 ? "strong" : "span", {text: line})));
  const box = tip.getBoundingClientRect();
  const width = document.documentElement.clientWidth;
  const left = x + 14 + box.width > width ? x - 14 - box.width : x + 14;
  tip.style.left = Math.max(4, Math.min(left, width - box.width - 4)) + "px";
  tip.style.top = Math.max(4, y - box.height - 10 < 4 ? y + 16 : y - box.height - 10) + "px";
}

function speak(text) {
  document.getElementById("spoken").textContent = text;
}

function prefersStill() {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}
