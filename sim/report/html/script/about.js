// Says where the page comes from: warnings, the command, the profile and the scenario.

function drawWarnings(page) {
  const warnings = page.data.warnings || [];
  if (warnings.length === 0) {
    return;
  }
  const card = section(page, "warnings", plural(warnings.length, "warning").replace(/^1 w/, "1 w"),
    null);
  card.classList.add("warning");
  card.append(el("ul", {}, ...warnings.map((text) => el("li", {text: shortName(text, 2000)}))));
}

function drawAbout(page) {
  const {data} = page;
  const card = section(page, "about", "Where this comes from", null);
  card.append(el("h3", {text: "The command that makes this page"}));
  const code = el("code", {id: "command", text: data.command});
  const button = el("button",
    {type: "button", text: "Copy", onclick: () => copyText(code, button)});
  card.append(el("div", {class: "command"}, el("pre", {tabindex: "0"}, code), button));
  if ((data.profile || []).length > 0) {
    card.append(el("h3", {text: "Where the costs come from"}));
    const isShort = ([, value]) => value.length <= 200 && !/[[{]/.test(value);
    card.append(factList(data.profile.filter(isShort)));
    const rest = data.profile.filter((row) => !isShort(row));
    if (rest.length > 0) {
      card.append(el("details", {}, el("summary", {text: "The rest of the profile's record"}),
        factList(rest)));
    }
  }
  if (data.scenario.text) {
    card.append(el("details", {id: "scenario"},
      el("summary", {text: "The scenario, " + shortName(data.scenario.file || "")}),
      el("pre", {tabindex: "0", text: data.scenario.text})));
  }
  card.append(el("p", {class: "made",
    text: `Made by stepsim ${shortName(data.version)} at ${shortName(data.made)}.`}));
}

function factList(rows) {
  return el("dl", {class: "facts"}, ...rows.flatMap(([name, value]) =>
    [el("dt", {text: shortName(name)}), el("dd", {text: shortName(value, 1000)})]));
}

/** Copies to the clipboard, or selects the text when a page opened from disk may not copy. */
function copyText(node, button) {
  const done = () => {
    button.textContent = "Copied";
    speak("Copied");
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  };
  const select = () => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    if (document.execCommand("copy")) {
      done();
    }
  };
  if (navigator.clipboard && window.isSecureContext) {
    navigator.clipboard.writeText(node.textContent).then(done, select);
  } else {
    select();
  }
}
