// Timelines: zoom, pan, details of a slice by pointer and keyboard; whole traces handed over to Perfetto.
(() => {
const start = (figure) => {
  const PADDING = 6, LEAST_LETTERS = 3, MOST_TICKS = 6, LAST_TICK = 0.93; // as in timeline.py
  const MOST_ZOOM = 200, DRAG_PX = 4, PING_MS = 50, MOST_PINGS = 600;

  const all = (selector) => [...figure.querySelectorAll(selector)];
  const [frame, drawing, axis, names, panel] = all(".frame, .drawing, .axis, .names, .selected");
  const [sample] = all("tspan"), [held] = all("noscript");
  // The tables, thousands of elements, are in the page only once their fold is open.
  const tables = held ? new DOMParser().parseFromString(held.textContent, "text/html").body : figure;
  const rows = tables.querySelectorAll(".lab-table tbody tr");
  held?.parentNode.addEventListener("toggle", () => held.replaceWith(...tables.childNodes), { once: true });
  const begin = +drawing.dataset.begin, span = +drawing.dataset.span;
  const slices = all(".slice").map((element, place) => {
    const [x, y, width] = ["x", "y", "width"].map((key) => parseFloat(element.getAttribute(key)));
    const row = rows[place], full = row.cells[0].textContent, { pair, short = full } = element.dataset;
    element.setAttribute("role", "option");
    element.tabIndex = place ? -1 : 0;
    return { element, row, pair, full, short, x, y, width };
  });
  let scale = 1, current = slices[0], waiting = 0, dragged = 0, apart = 0;

  const add = (parent, name, attributes = {}, text = "") => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.textContent = text;
    return element;
  };

  const drawNames = (left, right, percent) => {
    const letter = (1.1 * sample.getComputedTextLength()) / sample.textContent.length; // 0 while hidden
    for (const { element, full, short, x, width } of slices) {
      const start = Math.max(x * percent, left), end = Math.min((x + width) * percent, right);
      const letters = Math.floor((end - start - PADDING) / letter), text = element.lastChild;
      const cut = letters < LEAST_LETTERS ? "" : `${short.slice(0, letters - 1)}…`;
      text.textContent = [full, short].find((name) => name.length <= letters) ?? cut;
      text.setAttribute("x", start - x * percent + PADDING / 2);
    }
  };
  const drawAxis = (from, shown) => {
    const rough = shown / MOST_TICKS, power = 10 ** Math.floor(Math.log10(rough));
    const every = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const [unit, word] = span < 2000 ? [1, "µs"] : [1000, "ms"];
    axis.replaceChildren();
    for (let time = Math.ceil(from / every) * every; time <= from + LAST_TICK * shown; time += every) {
      const x = `${(100 * (time - begin)) / span}%`;
      add(axis, "line", { x1: x, x2: x, y2: "100%" });
      add(axis, "text", { x, dx: 4, y: 11 }, `${+(time / unit).toFixed(6)} ${word}`);
    }
  };
  const draw = () => {
    const { scrollLeft: left, clientWidth: seen } = frame;
    waiting = 0;
    names.setAttribute("transform", `translate(${left})`);
    drawNames(left, left + seen, (seen * scale) / 100);
    drawAxis(begin + (left / seen / scale) * span, span / scale);
  };
  const redraw = () => { waiting = waiting || requestAnimationFrame(draw); };
  const zoom = (factor, clientX) => {
    const { left, width } = frame.getBoundingClientRect(), at = clientX ? clientX - left : width / 2;
    const before = scale, place = frame.scrollLeft + at;
    scale = Math.min(MOST_ZOOM, Math.max(1, scale * factor));
    drawing.style.width = `${100 * scale}%`;
    frame.scrollLeft = (place * scale) / before - at;
    redraw();
  };

  const describe = (row) => {
    const list = add(panel, "dl"), [heads] = row.closest("table").tHead.rows;
    [...row.cells].forEach((cell, place) => {
      if (cell.querySelector(".none")) return;
      add(list, "dt", {}, heads.cells[place].textContent);
      add(list, "dd").append(...cell.cloneNode(true).childNodes);
    });
  };
  const select = (chosen) => {
    for (const slice of slices) slice.element.setAttribute("aria-selected", slice === chosen);
    for (const part of all("[data-pair]")) part.classList.toggle("lit", part.dataset.pair === chosen?.pair);
    panel.textContent = "";
    if (chosen) describe(chosen.row);
  };
  const sliceOf = (target) => slices.find(({ element }) => element.contains(target));
  const move = (right, down) => {
    const ahead = ({ x, y }) => (down ? (y - current.y) * down > 0 : y === current.y && (x - current.x) * right > 0);
    const gap = ({ x, width }) => Math.max(0, x - current.x - current.width, current.x - x - width);
    const away = (slice) => 100 * Math.abs(slice.y - current.y) + gap(slice);
    const [next] = slices.filter(ahead).sort((a, b) => away(a) - away(b));
    next?.element.focus();
  };
  const keys = {
    ArrowLeft: () => move(-1), ArrowRight: () => move(1), ArrowUp: () => move(0, -1), ArrowDown: () => move(0, 1),
    Enter: () => select(current), " ": () => select(current), Escape: () => select(),
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => zoom(0),
  };

  const on = (name, act) => frame.addEventListener(name, act, { passive: false });
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  on("focusin", ({ target }) => {
    current.element.tabIndex = -1;
    current = sliceOf(target) ?? current;
    current.element.tabIndex = 0;
    select();
    panel.textContent = current.full;
  });
  on("click", ({ target }) => {
    const slice = sliceOf(target);
    if (!slice || dragged > DRAG_PX) return;
    slice.element.focus();
    select(slice);
  });
  on("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 250), event.clientX);
  });
  on("pointerdown", () => { dragged = apart = 0; });
  on("pointermove", ({ pointerType, buttons, movementX }) => {
    if (pointerType !== "mouse" || buttons !== 1) return;
    dragged += Math.abs(movementX);
    frame.scrollLeft -= movementX;
  });
  on("touchmove", (event) => {
    const [a, b] = event.touches, before = apart;
    apart = b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
    if (b) event.preventDefault();
    if (b && before) zoom(apart / before, (a.clientX + b.clientX) / 2);
  });
  on("scroll", redraw);
  new ResizeObserver(redraw).observe(frame);
  addEventListener("beforeprint", () => { zoom(0); draw(); });

  const handOver = async ({ dataset: { trace, title, perfetto }, parentNode }) => {
    const { origin } = new URL(perfetto), status = parentNode.querySelector("[role=status]");
    const say = (text) => { status.textContent = text; };
    const opened = window.open(perfetto); // at once: later it would be blocked as a pop-up
    if (!opened) return say("The browser blocked the new window. Allow it, or download the trace.");
    say("Loading …");
    const buffer = await fetch(trace).then((reply) => reply.ok && reply.arrayBuffer()).catch(() => null);
    if (!buffer) return say("The trace could not be loaded.");
    let pings = 0;
    const stop = (text) => {
      clearInterval(asking);
      removeEventListener("message", answer);
      say(text);
    };
    const answer = ({ source, origin: from, data }) => {
      if (source !== opened || from !== origin || data !== "PONG") return;
      opened.postMessage({ perfetto: { buffer, title, fileName: trace.split("/").pop() } }, origin);
      stop("Handed over to Perfetto.");
    };
    const ask = () => {
      if (pings++ > MOST_PINGS) return stop("Perfetto does not answer.");
      opened.postMessage("PING", "*");
    };
    addEventListener("message", answer);
    const asking = setInterval(ask, PING_MS);
  };

  for (const button of all(".zoom button")) button.addEventListener("click", keys[button.value]);
  for (const button of all(".perfetto")) button.addEventListener("click", () => handOver(button));
  for (const element of all("[hidden]")) element.hidden = false;
  drawing.setAttribute("role", "listbox");
  frame.removeAttribute("tabindex");
  select();
};
  document.querySelectorAll(".lab-timeline").forEach(start);
  document.addEventListener("filled", ({ target }) => target.querySelectorAll(".lab-timeline").forEach(start));
})();
