// Curtains: the one figure that answers a guess is veiled until the reader commits a guess or asks to see the figure;
// verdicts about it wait with it. All else stays in sight, and who comes by a link or from the search finds nothing
// veiled. After guess.js, which makes the forms and keeps what was said. A page without this script veils nothing.
(() => {
  const EVERY = "show every answer";
  const arrived = location.hash.length > 1 || new URLSearchParams(location.search).has("h");

  const button = (text, onclick) => make("button", { type: "button", onclick }, text);

  // A folded question -> its answers, and the fences that they veil.
  const questions = new Map();
  for (const answer of document.querySelectorAll("details .guess")) {
    const details = answer.closest("details");
    if (!questions.has(details)) questions.set(details, { answers: [], labs: new Set() });
    const { answers, labs } = questions.get(details);
    answers.push(answer);
    for (const fence of answer.dataset.veils?.split(" ") ?? []) {
      const lab = document.querySelector(`.lab[data-fence="${CSS.escape(fence)}"]`);
      if (lab && !lab.querySelector(".verdicts:empty")) labs.add(lab); // nothing differs, nothing waits
    }
  }

  // What opens above an element does not push it away from under the reader's eyes.
  const inPlace = (element, change) => {
    const before = element.getBoundingClientRect().top;
    change();
    scrollBy({ top: element.getBoundingClientRect().top - before, behavior: "instant" });
  };

  const lift = (lab) => {
    lab.querySelector(":scope > .veil")?.remove();
    for (const child of lab.children) child.inert = false;
    lab.classList.remove("veiled", "waits");
  };
  const veil = (lab, details) => {
    if (lab.classList.contains("veiled")) return;
    const look = () => inPlace(lab, () => {
      details.open = true;
      questions.get(details).labs.forEach(lift);
      lab.tabIndex = -1;
      lab.focus({ preventScroll: true });
    });
    const guess = () => {
      details.scrollIntoView({ block: "center" });
      details.nextElementSibling?.querySelector("input, select, button")?.focus({ preventScroll: true });
    };
    const waits = Boolean(lab.querySelector(".verdicts"));
    for (const child of lab.children) child.inert = true;
    lab.classList.add("veiled", "answer"); // an answer is laid out even out of sight: its veil keeps its room
    lab.classList.toggle("waits", waits);
    const all = () => inPlace(lab, () => {
      box.checked = true;
      box.dispatchEvent(new Event("change"));
    });
    const words = waits
      ? [make("span", {}, "The verdicts appear together with the answer.")]
      : [make("span", {}, "The hidden figure has the answer."), button("Guess first", guess), button("Just show me", look)];
    if (!waits && box) words.push(button("Show every answer, on all pages", all));
    lab.append(make("div", { className: "veil" }, make("p", {}, ...words)));
  };

  // The panel of an answer's device, of all in a fence.
  const panelOf = (lab, { dataset }) => lab.querySelector(`:scope > .device[data-device="${CSS.escape(dataset.device)}"]`) ?? lab;

  const add = (parent, name, attributes, content = "") => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.textContent = content;
    return element;
  };
  const nameOf = ({ dataset }) => dataset.short ?? dataset.said?.split("\n")[0];

  // Among bars from the floor up, a guess is a bar of its own, to scale: a longer one widens the scale, up to four times.
  const addBar = (list, amount, text) => {
    const { top } = list.dataset, widest = Math.max(top, Math.min(amount, 4 * top));
    list.style.setProperty("--top", widest);
    const name = make("span", { className: "name" }, "your prediction");
    const track = make("span", { className: "track" }, make("i"), make("span", { className: "amount" }, amount > widest ? `${text} →` : text));
    const bar = make("li", { className: "you" }, name, track);
    bar.style.setProperty("--amount", Math.min(amount, widest));
    list.querySelector(".floor").after(bar);
  };

  // A guess in a figure, to scale: a bar, a line across the axis of its unit, or a bar in the slice of a timeline that it
  // is about; where there is no axis, words in the caption.
  const mark = (panel, { mark: place }, { value, text }) => {
    const words = `you: ${text}`, amount = place?.times * value;
    const bars = panel.querySelector(".floor-bars > ol");
    if (bars && place?.unit === bars.dataset.unit) return addBar(bars, amount, text);
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
    const { answers, labs } = questions.get(details);
    const isOpen = arrived || details.open || answers.some(({ said }) => said);
    for (const lab of labs) {
      isOpen ? lift(lab) : veil(lab, details);
      lab.querySelectorAll(".you").forEach((drawn) => drawn.remove());
      lab.querySelectorAll(".floor-bars > ol").forEach(({ style, dataset }) => style.setProperty("--top", dataset.top));
      const marked = new Set();
      for (const answer of answers.filter(({ said, dataset }) => said && dataset.veils)) {
        const panel = panelOf(lab, answer);
        if (!panel || marked.has(panel)) continue; // a panel may be that of all devices
        marked.add(panel);
        mark(panel, JSON.parse(answer.dataset.guess), answer.said);
      }
    }
  };

  // The switch for the whole book, which each veil has, too.
  const bar = document.querySelector(".guess-bar");
  const box = bar && make("input", { type: "checkbox", checked: stored(EVERY) === "yes" });
  const every = (isOn) => {
    for (const [details, { answers }] of questions) {
      details.open = isOn || answers.some(({ said }) => said);
      draw(details);
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
  if (bar) {
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
    for (const [details, { labs }] of questions) {
      if (!labs.has(veiled)) continue;
      details.open = true;
      draw(details);
    }
    const { classList } = document.documentElement, isMoved = target && !classList.contains("jumped");
    if (target) classList.add("jumped"); // what is above takes its true height, as in theme.js
    const folds = [];
    for (let at = target?.closest("details:not([open])"); at; at = at.parentElement.closest("details:not([open])")) folds.push(at);
    for (const fold of folds) fold.open = true;
    if (isMoved || veiled || folds.length) target.scrollIntoView({ behavior: "instant" });
  };
  addEventListener("hashchange", follow);
  follow();
})();
