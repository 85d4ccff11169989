// Curtains: what answers a guess is veiled until the reader commits one or asks to see it. After guess.js, which makes
// the forms and keeps what was said. A page without this script veils nothing.
(() => {
  const EVERY = "show every answer";
  const root = document.documentElement;

  const make = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
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
      if (lab) labs.add(lab);
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
    lab.classList.remove("veiled");
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
    for (const child of lab.children) child.inert = true;
    lab.classList.add("veiled");
    const text = make("span", {}, "The answer to a guess.");
    lab.append(make("div", { className: "veil" }, make("p", {}, text, button("Guess first", guess), button("Just show me", look))));
  };

  // After a guess, or its end: what it veils, and its mark there.
  const draw = (details) => {
    const { answers, labs } = questions.get(details);
    const isOpen = details.open || answers.some(({ said }) => said);
    labs.forEach((lab) => (isOpen ? lift(lab) : veil(lab, details)));
  };
  for (const details of questions.keys()) {
    details.addEventListener("guess", () => draw(details));
    details.addEventListener("toggle", () => details.open && draw(details));
    draw(details);
  }

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
    try {
      box.checked = localStorage.getItem(EVERY) === "yes";
    } catch {
      box.checked = false;
    }
    box.addEventListener("change", () => {
      inPlace(box, () => every(box.checked));
      try {
        localStorage.setItem(EVERY, box.checked ? "yes" : "no");
      } catch {
        // it lasts as long as the page
      }
    });
    bar.append(make("label", {}, box, " Show every answer"));
    if (box.checked) every(true);
  }

  // A link to something veiled or folded lifts the veil and opens the folds.
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const lab = target?.closest(".lab.veiled");
    for (const [details, { labs }] of questions) if (lab && labs.has(lab)) details.open = true;
    if (lab) lift(lab);
    const folds = [];
    for (let at = target?.closest("details:not([open])"); at; at = at.parentElement.closest("details:not([open])")) folds.push(at);
    for (const fold of folds) fold.open = true;
    if (lab || folds.length) target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
})();
