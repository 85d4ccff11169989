// Curtains: what answers a guess is veiled until the reader commits one or asks to see it. After guess.js, which makes
// the forms and keeps what was said. A page without this script veils nothing.
(() => {
  const EVERY = "show every answer";
  const root = document.documentElement;

  const button = (text, onclick) => make("button", { type: "button", onclick }, text);

  // A folded question -> its answers, the fences that they veil, and the curtains over these.
  const questions = new Map();
  for (const answer of document.querySelectorAll("details .guess")) {
    const details = answer.closest("details");
    if (!questions.has(details)) questions.set(details, { answers: [], labs: new Set(), curtains: new Set() });
    const { answers, labs } = questions.get(details);
    answers.push(answer);
    for (const fence of answer.dataset.veils?.split(" ") ?? []) {
      const lab = document.querySelector(`.lab[data-fence="${CSS.escape(fence)}"]`);
      if (lab) labs.add(lab);
    }
  }

  // Within the question's section one curtain covers everything from the first of its fences to the last, and the text
  // right after, which explains them; elsewhere each fence has its own.
  const isEnd = (element) => element.matches("h1, h2, h3, .guess-bar, details:has(.guess)");
  for (const [details, { labs, curtains }] of questions) {
    const below = [];
    for (let at = details.nextElementSibling; at && !isEnd(at); at = at.nextElementSibling) below.push(at);
    const first = below.findIndex((element) => labs.has(element));
    if (first >= 0) {
      const last = below.findLastIndex((element) => labs.has(element));
      const next = below.findIndex((element, index) => index > last && element.matches(".lab, .highlight, details"));
      const curtain = make("div", { className: "curtain" });
      below[first].before(curtain);
      curtain.append(...below.slice(first, next < 0 ? undefined : next));
      curtains.add(curtain);
    }
    for (const lab of labs) if (!lab.closest(".curtain")) curtains.add(lab);
  }

  // What opens above an element does not push it away from under the reader's eyes.
  const inPlace = (element, change) => {
    const before = element.getBoundingClientRect().top;
    change();
    scrollBy({ top: element.getBoundingClientRect().top - before, behavior: "instant" });
  };

  const lift = (curtain) => {
    curtain.querySelector(":scope > .veil")?.remove();
    for (const child of curtain.children) child.inert = false;
    curtain.classList.remove("veiled");
  };
  const veil = (curtain, details) => {
    if (curtain.classList.contains("veiled")) return;
    const look = () => inPlace(curtain, () => {
      details.open = true;
      questions.get(details).curtains.forEach(lift);
      curtain.tabIndex = -1;
      curtain.focus({ preventScroll: true });
    });
    const guess = () => {
      details.scrollIntoView({ block: "center" });
      details.nextElementSibling?.querySelector("input, select, button")?.focus({ preventScroll: true });
    };
    for (const child of curtain.children) child.inert = true;
    curtain.classList.add("veiled", "answer"); // an answer is laid out even out of sight: its veil keeps its room
    const words = [make("span", {}, "The answer to a guess."), button("Guess first", guess), button("Just show me", look)];
    curtain.append(make("div", { className: "veil" }, make("p", {}, ...words)));
  };

  // The panel of an answer's device, of all in a fence.
  const panelOf = (lab, { dataset }) => {
    const inputs = [...lab.querySelectorAll(":scope > .devices > input")];
    const blocks = lab.querySelectorAll(":scope > .devices > .tabbed-content > .tabbed-block");
    return inputs.length ? blocks[inputs.findIndex((input) => input.dataset.device === dataset.device)] : lab;
  };

  const add = (parent, name, attributes, content = "") => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.textContent = content;
    return element;
  };
  const nameOf = ({ dataset }) => dataset.short ?? dataset.said?.split("\n")[0];

  // A guess in a figure, to scale: a line across the axis of its unit, or a bar in the slice of a timeline that it is
  // about; where there is no axis, words in the caption.
  const mark = (panel, { mark: place }, { value, text }) => {
    const words = `you: ${text}`, amount = place?.times * value;
    const drawing = panel.querySelector("svg[data-axis]"), axis = JSON.parse(drawing?.dataset.axis ?? "null");
    if (axis && !place?.at && place?.unit === axis.unit) {
      const { width } = drawing.viewBox.baseVal;
      const exact = axis.zero + (amount * axis.length) / axis.amount, x = Math.min(exact, width);
      const group = add(drawing, "g", { class: "you" });
      add(group, "line", { x1: x, x2: x, y1: -3, y2: axis.height });
      const anchor = x < width / 4 ? "start" : x > (3 * width) / 4 ? "end" : "middle";
      add(group, "text", { x, y: -6, "text-anchor": anchor }, exact > width ? `${words} →` : words);
      return;
    }
    const slice = place?.at && [...panel.querySelectorAll(".slice")].find((each) => nameOf(each) === place.at);
    if (slice) {
      const [x, y, height] = ["x", "y", "height"].map((key) => slice.getAttribute(key));
      const width = `${(100 * amount) / slice.closest(".drawing").dataset.span}%`;
      add(slice.parentNode, "rect", { class: "you", x, y: +y + +height - 5, height: 5, width });
    }
    panel.querySelector("figcaption, caption")?.append(make("span", { className: "you" }, ` ${words}`));
  };

  // After a guess, or its end: what it veils, and its mark there.
  const draw = (details) => {
    const { answers, labs, curtains } = questions.get(details);
    const isOpen = details.open || answers.some(({ said }) => said);
    for (const curtain of curtains) isOpen ? lift(curtain) : veil(curtain, details);
    for (const lab of labs) {
      lab.querySelectorAll(".you").forEach((drawn) => drawn.remove());
      const marked = new Set();
      for (const answer of answers.filter(({ said, dataset }) => said && dataset.veils)) {
        const panel = panelOf(lab, answer);
        if (!panel || marked.has(panel)) continue; // a panel may be that of all devices
        marked.add(panel);
        mark(panel, JSON.parse(answer.dataset.guess), answer.said);
      }
    }
  };
  for (const details of questions.keys()) {
    details.addEventListener("guess", () => draw(details));
    details.addEventListener("toggle", () => details.open && draw(details));
    draw(details);
  }
  document.addEventListener("filled", ({ target }) => { // another device's panel
    for (const [details, { labs }] of questions) if (labs.has(target.closest(".lab"))) draw(details);
  });

  document.querySelectorAll("[data-veiled]").forEach((lab) => lab.removeAttribute("data-veiled"));

  // The switch for the whole book.
  const every = (isOn) => {
    for (const [details, { answers }] of questions) {
      details.open = isOn || answers.some(({ said }) => said);
      draw(details);
    }
  };
  const bar = document.querySelector(".guess-bar");
  if (bar) {
    const box = make("input", { type: "checkbox" });
    box.checked = stored(EVERY) === "yes";
    box.addEventListener("change", () => {
      inPlace(box, () => every(box.checked));
      stored(EVERY, box.checked ? "yes" : "no");
    });
    bar.append(make("label", {}, box, " Show every answer"));
    if (box.checked) every(true);
  }

  // A link to something veiled or folded lifts the veil and opens the folds.
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const veiled = target?.closest(".veiled");
    for (const [details, { curtains }] of questions) if (curtains.has(veiled)) details.open = true;
    if (veiled) lift(veiled);
    const folds = [];
    for (let at = target?.closest("details:not([open])"); at; at = at.parentElement.closest("details:not([open])")) folds.push(at);
    for (const fold of folds) fold.open = true;
    if (veiled || folds.length) target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
})();
