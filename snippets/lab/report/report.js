// Timelines: zoom, names that fit, the selected slice in words. The report can be read without this script.
for (const figure of document.querySelectorAll(".lab-timeline")) {
  const PADDING = 6, LETTER = 6, LEAST_LETTERS = 3, MOST_TICKS = 6, MOST_ZOOM = 400, TARGET_PX = 40;
  const one = (selector) => figure.querySelector(selector);
  const frame = one(".frame"), drawing = one(".drawing"), axis = one(".axis"), names = one(".names");
  const panel = one(".selected"), begin = +drawing.dataset.begin, span = +drawing.dataset.span;
  const slices = [...figure.querySelectorAll(".slice")].map((element) => {
    const [x, width] = ["x", "width"].map((key) => parseFloat(element.getAttribute(key)));
    const words = element.querySelector("title").textContent, full = words.split("\n")[0];
    return { element, x, width, words, full, short: element.dataset.short ?? full };
  });
  let scale = 1, waiting = 0;

  const add = (parent, name, attributes, text = "") => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.textContent = text;
  };
  const draw = () => {
    waiting = 0;
    const left = frame.scrollLeft, seen = frame.clientWidth, percent = (seen * scale) / 100;
    names.setAttribute("transform", `translate(${left})`);
    for (const { element, full, short, x, width } of slices) {
      const start = Math.max(x * percent, left), end = Math.min((x + width) * percent, left + seen);
      const letters = Math.floor((end - start - PADDING) / LETTER), text = element.lastChild;
      const cut = letters < LEAST_LETTERS ? "" : `${short.slice(0, letters - 1)}…`;
      const fits = [full, short].find((name) => name.length <= letters) ?? cut;
      if (text.textContent !== fits) text.textContent = fits;
      if (fits) text.setAttribute("x", start - x * percent + PADDING / 2);
    }
    const from = begin + (left / seen / scale) * span, shown = span / scale;
    const rough = shown / (seen < 500 ? MOST_TICKS / 2 : MOST_TICKS), power = 10 ** Math.floor(Math.log10(rough));
    const every = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const [unit, word] = span < 2000 ? [1, "µs"] : [1000, "ms"];
    axis.replaceChildren();
    for (let time = Math.ceil(from / every) * every; time <= from + 0.93 * shown; time += every) {
      const x = `${(100 * (time - begin)) / span}%`;
      add(axis, "line", { x1: x, x2: x, y2: "100%" });
      add(axis, "text", { x, dx: 4, y: 11 }, `${+(time / unit).toFixed(6)} ${word}`);
    }
  };
  const redraw = () => { waiting = waiting || requestAnimationFrame(draw); };
  const zoom = (factor, at = frame.clientWidth / 2) => {
    const time = (frame.scrollLeft + at) / scale;
    scale = Math.min(MOST_ZOOM, Math.max(1, scale * factor));
    drawing.style.width = `${100 * scale}%`;
    frame.scrollLeft = time * scale - at;
    redraw();
  };
  const select = (slice) => {
    for (const each of slices) each.element.classList.toggle("chosen", each === slice);
    panel.textContent = slice ? slice.words.replaceAll("\n", " · ") : "";
  };
  const follow = () => {
    const slice = slices.find(({ element }) => element.id && `#${element.id}` === location.hash);
    if (!slice) return;
    zoom(TARGET_PX / ((slice.width * frame.clientWidth * scale) / 100 || 1));
    frame.scrollLeft = ((slice.x + slice.width / 2) * frame.clientWidth * scale) / 100 - frame.clientWidth / 2;
    figure.scrollIntoView({ block: "nearest" });
    select(slice);
    redraw();
  };

  figure.querySelectorAll(".zoom button").forEach((button) => button.addEventListener("click", () => {
    zoom({ "+": 2, "-": 0.5, 0: 1 / scale }[button.value]);
  }));
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(2 ** (-event.deltaY / 200), event.clientX - frame.getBoundingClientRect().left);
  }, { passive: false });
  frame.addEventListener("keydown", (event) => {
    const factor = { "+": 2, "=": 2, "-": 0.5, 0: 1 / scale }[event.key];
    if (factor && !event.ctrlKey && !event.metaKey) zoom(factor);
  });
  drawing.addEventListener("click", (event) => {
    select(slices.find(({ element }) => element === event.target.closest(".slice")));
  });
  frame.addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(redraw).observe(frame);
  addEventListener("hashchange", follow);
  one(".zoom").hidden = false;
  draw();
  follow();
}
