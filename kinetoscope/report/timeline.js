// Timelines: zoom, pan, alignment, measuring, details of a slice by pointer and keyboard; whole traces for Perfetto.
(() => {
const start = (figure) => {
  const PADDING = 6, LEAST_LETTERS = 3, MOST_TICKS = 6, THIN_PX = 4, CPU_PX = 16, GPU_PX = 22; // as in canvas.py
  const MARGIN = 1.004, MOST_ZOOM = 400, DRAG_PX = 4, TARGET_PX = 40, PHONE_PX = 500, PAN = 0.2;
  const PING_MS = 50, MOST_PINGS = 600;

  const all = (selector) => [...figure.querySelectorAll(selector)];
  const one = (selector) => figure.querySelector(selector);
  const frame = one(".frame"), drawing = one(".drawing"), axis = one(".axis"), names = one(".names");
  const panel = one(".selected"), readout = one(".readout");
  const ink = document.createElement("canvas").getContext("2d"), widths = new Map();
  // The tables are read once a slice is selected, and in the page, thousands of elements, once their fold is open.
  const held = one("noscript"), inPage = ({ textContent }, use) => use(new DOMParser().parseFromString(textContent, "text/html").body);
  let tables = held ? null : figure, rows = [];
  const withTables = (use) => {
    const ready = (found) => {
      if (!rows.length) [tables, rows] = [found, found.querySelectorAll("tbody tr")];
      use();
    };
    tables ? ready(tables) : (window.heldBack ?? inPage)(held, ready);
  };
  held?.parentNode.addEventListener("toggle", ({ target }) => withTables(() => {
    held.replaceWith(...tables.childNodes);
    target.dispatchEvent(new Event("filled", { bubbles: true }));
  }), { once: true });
  const begin = +drawing.dataset.begin, span = +drawing.dataset.span;
  const add = (parent, name, attributes = {}, text = "") => {
    const element = parent.appendChild(document.createElementNS(parent.namespaceURI, name));
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text) element.textContent = text;
    return element;
  };

  const steps = all(".step").map((element) => {
    const [from, to] = element.dataset.shown.split(" ").map(Number), { gpu } = element.dataset;
    const step = { element, from, to, gpu: gpu && +gpu, shift: 0, name: element.getAttribute("aria-label") };
    step.pieces = [...element.querySelectorAll("[data-said]")].map((rect) => pieceOf(rect, step));
    step.work = step.pieces.filter((piece) => piece.onGpu && !piece.isGap).sort((a, b) => a.start - b.start);
    return step;
  });
  function pieceOf(element, step) {
    const [x, top, width, height] = ["x", "y", "width", "height"].map((key) => parseFloat(element.getAttribute(key)));
    const { said, pair, short } = element.dataset, words = said.split("\n"), [full] = words;
    let text = element.nextElementSibling;
    if (text?.matches(".overlap")) text = text.nextElementSibling;
    return {
      element, step, x, y: top + height, width, pair, words, full, short: short ?? full, start: begin + (x * span) / 100,
      lasts: (width * span) / 100, filled: +(element.dataset.filled ?? 1), text: text?.matches("text") ? text : null, lane: element.parentNode,
      onGpu: element.parentNode.matches(".gpu"), isGap: element.matches(".gap"),
      isBlock: element.matches(".block"), isOwn: element.matches(".slice"),
    };
  }
  const pieces = steps.flatMap((step) => step.pieces), slices = pieces.filter(({ isOwn }) => isOwn);
  const pieceAt = new Map(pieces.map((piece) => [piece.element, piece]));
  for (const { element, words } of slices) {
    element.setAttribute("role", "option");
    element.setAttribute("aria-label", words.join(", "));
    element.tabIndex = -1;
  }
  const cursor = add(drawing, "line", { class: "cursor", x1: -9, x2: -9, y2: "100%" });
  const range = add(drawing, "rect", { class: "range", height: "100%", width: 0 });
  let view = { from: begin, span }, scale = 1, current = slices[0], waiting = 0, drag = null, apart = 0, mark = null;
  let selected = null, map = null, zero = "the start of the step";
  if (current) current.element.tabIndex = 0;

  const format = (us) => {
    const [size, unit] = us < 0.9995 ? [1e3, "ns"] : us < 999.5 ? [1, "µs"] : us < 999500 ? [1e-3, "ms"] : [1e-6, "s"];
    const value = us * size;
    return us ? `${value < 99.95 ? value.toPrecision(3) : Math.round(value)} ${unit}` : "0 µs";
  };
  const share = (time) => (100 * (time - view.from)) / view.span;
  const timeAt = (clientX) => {
    const x = clientX - frame.getBoundingClientRect().left + frame.scrollLeft;
    return view.from + (x / frame.clientWidth / scale) * view.span;
  };
  const say = (strong, text, { isBrief = false, isLive = false } = {}) => {
    readout.ariaLive = isLive ? "polite" : "off";
    readout.classList.toggle("brief", isBrief);
    readout.textContent = "";
    add(readout, "b", {}, strong);
    readout.append(text);
  };
  const describe = (piece) => {
    const of = steps.length > 1 ? `${piece.step.name}: ` : "";
    say(piece.full, ` · ${of}${piece.words.at(-1)}`, { isBrief: true });
  };

  const widthOf = (text) => {
    if (!widths.has(text)) widths.set(text, ink.measureText(text).width);
    return widths.get(text);
  };
  const fitted = ({ full, short, isGap }, wide) => {
    const whole = [full, short].find((name) => widthOf(name) <= wide);
    if (whole !== undefined || isGap) return whole;
    let letters = Math.min(short.length, Math.floor((short.length * wide) / widthOf(short)));
    while (letters >= LEAST_LETTERS - 1 && widthOf(`${short.slice(0, letters)}…`) > wide) letters--;
    return letters < LEAST_LETTERS - 1 ? "" : `${short.slice(0, letters)}…`;
  };
  const drawName = (piece, left, right, percent) => {
    const { element, step, start: from, lasts, x, width, y, isGap, isBlock } = piece;
    if (!isGap && !isBlock) element.classList.toggle("thin", (100 * lasts * percent) / view.span < THIN_PX);
    const at = share(from + step.shift) * percent, end = Math.min(at + (100 * lasts * percent) / view.span, right);
    const start = Math.max(at, left), name = fitted(piece, end - start - PADDING);
    if (!name) {
      piece.text?.remove();
      piece.text = null;
      return;
    }
    if (!piece.text) {
      piece.text = add(piece.lane, "text", { y: y - (piece.onGpu ? GPU_PX : CPU_PX) / 2 + 4 });
      const overlap = element.nextElementSibling;
      (overlap?.matches(".overlap") ? overlap : element).after(piece.text);
    }
    const middle = x + width / 2, px = at + (50 * lasts * percent) / view.span;
    if (piece.text.textContent !== name) piece.text.textContent = name;
    piece.text.setAttribute("x", `${isGap ? middle : x}%`);
    piece.text.setAttribute("dx", isGap ? (start + end) / 2 - px : start - at + PADDING / 2);
  };
  const drawAxis = (from, shown, most) => {
    const rough = shown / most, power = 10 ** Math.floor(Math.log10(rough));
    const every = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const [unit, word] = view.span < 2000 ? [1, "µs"] : [1000, "ms"];
    axis.textContent = "";
    for (let tick = Math.ceil(from / every); tick * every <= from + shown; tick++) {
      const x = `${share(tick * every)}%`, text = `${+((tick * every) / unit).toFixed(6)} ${word}`.replace("-", "−");
      const free = (1 - (tick * every - from) / shown) * frame.clientWidth;
      add(axis, "line", { x1: x, x2: x, y2: "100%" });
      if (widthOf(text) + PADDING <= free) add(axis, "text", { x, dx: 4, y: 15 }, text);
    }
  };
  const draw = () => {
    const { scrollLeft: left, clientWidth: seen } = frame;
    waiting = 0;
    if (!seen) return; // behind a tab or a veil
    ink.font = ["fontSize", "fontFamily"].map((key) => getComputedStyle(drawing)[key]).join(" ");
    names.setAttribute("transform", `translate(${left})`);
    for (const piece of pieces) drawName(piece, left, left + seen, (seen * scale) / 100);
    const most = seen < PHONE_PX ? MOST_TICKS / 2 : MOST_TICKS;
    drawAxis(view.from + (left / seen / scale) * view.span, view.span / scale, most);
    drawMap(left / seen / scale);
  };
  const redraw = () => { waiting = waiting || requestAnimationFrame(draw); };

  /** The whole of the GPU's work as a strip, with what is seen of it, while that is a part. */
  const drawMap = (from) => {
    if (scale > 1.02 && !map) {
      map = document.createElementNS(drawing.namespaceURI, "svg");
      map.setAttribute("class", "minimap");
      map.setAttribute("aria-hidden", "true");
      frame.after(map);
      map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); jump(event); });
      map.addEventListener("pointermove", (event) => event.buttons && jump(event));
      fillMap();
    }
    map?.toggleAttribute("hidden", scale <= 1.02);
    if (map) for (const [key, value] of [["x", from], ["width", 1 / scale]]) map.lastChild.setAttribute(key, `${100 * value}%`);
  };
  const fillMap = () => {
    if (!map) return;
    map.textContent = "";
    const high = 100 / steps.length;
    steps.forEach(({ work, shift }, row) => {
      for (const { element, start, lasts, filled } of work) {
        const kind = element.getAttribute("class").replace("slice ", ""), width = `${(100 * lasts) / view.span}%`;
        const place = { x: `${share(start + shift)}%`, y: `${(row + 0.85 - 0.7 * filled) * high}%` };
        add(map, "rect", { class: kind, ...place, width, height: `${0.7 * filled * high}%` });
      }
    });
    add(map, "rect", { class: "window", height: "100%" });
  };
  const jump = ({ clientX }) => {
    const { left, width } = map.getBoundingClientRect();
    frame.scrollLeft = ((clientX - left) / width) * frame.clientWidth * scale - frame.clientWidth / 2;
  };
  const zoom = (factor, clientX) => {
    const { left, width } = frame.getBoundingClientRect(), at = clientX ? clientX - left : width / 2;
    const before = scale, place = frame.scrollLeft + at;
    scale = Math.min(MOST_ZOOM, Math.max(1, scale * factor));
    drawing.style.width = `${100 * scale}%`;
    frame.scrollLeft = (place * scale) / before - at;
    redraw();
  };
  const pan = (part) => { frame.scrollLeft += part * PAN * frame.clientWidth; };

  const unmark = () => {
    range.setAttribute("width", 0);
    mark = null;
    readout.textContent = "";
  };
  const align = (how) => {
    zero = how === "gpu" ? "the start of its GPU work" : "the start of the step";
    for (const step of steps) step.shift = how === "gpu" && step.gpu !== "" ? -step.gpu : 0;
    const from = Math.min(...steps.map(({ from, shift }) => from + shift));
    const to = Math.max(...steps.map((step) => step.to + step.shift));
    view = { from, span: (to - from) * MARGIN || 1 };
    for (const { element, shift } of steps) {
      element.setAttribute("x", `${share(begin + shift)}%`);
      element.setAttribute("width", `${(100 * span) / view.span}%`);
    }
    unmark();
    fillMap();
    redraw();
  };
  const busyIn = ({ work, shift }, from, to) => {
    let busy = 0, reached = from;
    for (const { start, lasts, filled } of work) {
      const [left, right] = [Math.max(start + shift, reached), Math.min(start + shift + lasts, to)];
      if (right > left) [busy, reached] = [busy + filled * (right - left), right];
    }
    return busy;
  };
  const measure = (a, b, isLive) => {
    const [from, to] = [Math.min(a, b), Math.max(a, b)], busy = [];
    range.setAttribute("x", `${share(from)}%`);
    range.setAttribute("width", `${(100 * (to - from)) / view.span}%`);
    for (const step of steps) {
      const [left, right] = [Math.max(from, step.from + step.shift), Math.min(to, step.to + step.shift)];
      if (step.gpu === "" || right <= left) continue;
      const time = busyIn(step, left, right), about = step.work.some(({ isBlock }) => isBlock);
      const percent = `${about ? "about " : ""}${((100 * time) / (right - left)).toFixed(1)} %`;
      busy.push(`${steps.length > 1 ? `${step.name} ` : ""}${format(time)} (${percent})`);
    }
    say(format(to - from), ` measured${busy.length ? `. GPU busy: ${busy.join(", ")}` : ""}`, { isLive });
  };
  const setMark = () => {
    if (!current) return;
    const start = current.start + current.step.shift, end = start + current.lasts;
    if (!mark) {
      mark = [start, end];
      return say("Marked.", " Go to another slice and press M: the time from the one to the other.", { isLive: true });
    }
    measure(Math.min(mark[0], start), Math.max(mark[1], end), true);
    mark = null;
  };

  /** The slice itself, its operators, its call, and the work that it put on the GPU. */
  const chainOf = (chosen) => {
    const near = chosen.step.pieces.filter(({ isOwn }) => isOwn), isCall = ({ element }) => element.matches(".call");
    const within = ({ start }, { start: from, lasts }) => start >= from && start < from + lasts;
    const inLane = near.filter(({ lane }) => lane === chosen.lane);
    const calls = chosen.onGpu ? near.filter((piece) => isCall(piece) && chosen.pair && piece.pair === chosen.pair)
      : isCall(chosen) ? [chosen] : inLane.filter((piece) => isCall(piece) && within(piece, chosen));
    const pairs = new Set(calls.map(({ pair }) => pair).filter(Boolean)), inner = chosen.onGpu ? calls[0] : chosen;
    const ops = near.filter((piece) => inner && piece.lane === inner.lane && piece.element.matches(".op")
      && piece.y < inner.y && within(inner, piece)).sort((a, b) => a.y - b.y);
    return { ops, calls, inner, work: near.filter(({ onGpu, pair }) => onGpu && pairs.has(pair)) };
  };
  const rowOf = (slice) => rows[slices.indexOf(slice)];
  const details = (slice, { ops, inner }) => {
    const list = add(panel, "dl"), row = rowOf(slice);
    const entry = (term, ...content) => {
      add(list, "dt", {}, term);
      add(list, "dd").append(...content);
    };
    if (!row) {
      slice.words.forEach((line, place) => entry(place ? (place + 1 < slice.words.length ? "name" : "lasts") : "what", line));
    } else {
      const [heads] = row.closest("table").tHead.rows;
      [...row.cells].forEach((cell, place) => {
        if (!cell.querySelector(".none")) entry(heads.cells[place].textContent, ...cell.cloneNode(true).childNodes);
      });
    }
    const chain = [...ops, ...new Set([inner, slice])].filter(Boolean);
    if (chain.length > 1) entry("chain", chain.map(({ full }) => full).join(" › "));
    const site = document.getElementById("__config"), isKernel = slice.element.matches(".gemm, .pointwise, .other");
    if (!site || !isKernel || slice.element.matches(".block")) return;
    const name = row?.cells[1].textContent ?? (slice.words.length > 2 ? slice.words[1] : slice.full), { base } = JSON.parse(site.textContent);
    const href = `${base}/kernel_names/#decode=${encodeURIComponent(name)}`;
    add(panel, "a", { class: "decode", href }, "Decode this name");
  };
  const select = (chosen) => {
    const chain = chosen && chainOf(chosen);
    const lit = new Set(chosen ? [chosen, ...chain.ops, ...chain.calls, ...chain.work] : []);
    const pairs = new Set([...lit].map(({ pair }) => pair).filter(Boolean));
    for (const slice of slices) {
      slice.element.setAttribute("aria-selected", slice === chosen);
      slice.element.classList.toggle("lit", lit.has(slice));
    }
    for (const line of all(".arrows line")) line.classList.toggle("lit", pairs.has(line.dataset.pair));
    panel.textContent = "";
    selected = chosen;
    if (chosen) withTables(() => {
      if (selected !== chosen) return; // by now
      panel.textContent = "";
      details(chosen, chain);
    });
  };
  const move = (right, down) => {
    const ahead = ({ x, y }) => (down ? (y - current.y) * down > 0 : y === current.y && (x - current.x) * right > 0);
    const gap = ({ x, width }) => Math.max(0, x - current.x - current.width, current.x - x - width);
    const away = (slice) => 100 * Math.abs(slice.y - current.y) + gap(slice);
    const [next] = slices.filter(ahead).sort((a, b) => away(a) - away(b));
    next?.element.focus();
  };
  const keys = {
    ArrowLeft: () => move(-1), ArrowRight: () => move(1), ArrowUp: () => move(0, -1), ArrowDown: () => move(0, 1),
    Enter: () => select(current), " ": () => select(current), Escape: () => { select(); unmark(); },
    "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => zoom(0),
    w: () => zoom(1.5), s: () => zoom(1 / 1.5), a: () => pan(-1), d: () => pan(1), m: setMark,
  };

  const on = (name, act) => frame.addEventListener(name, act, { passive: false });
  on("keydown", (event) => {
    const act = keys[event.key.length > 1 ? event.key : event.key.toLowerCase()];
    if (event.ctrlKey || event.metaKey || event.altKey || !act) return;
    event.preventDefault();
    act();
  });
  on("focusin", ({ target }) => {
    if (!pieceAt.get(target)) return;
    current.element.tabIndex = -1;
    current = pieceAt.get(target);
    current.element.tabIndex = 0;
    select();
    describe(current);
  });
  on("click", ({ target }) => {
    const slice = pieceAt.get(target);
    if (!slice?.isOwn || drag?.moved > DRAG_PX) return;
    slice.element.focus({ preventScroll: true });
    select(slice);
  });
  on("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 250), event.clientX);
  });
  on("pointerdown", (event) => {
    apart = 0;
    drag = { from: timeAt(event.clientX), measures: event.target.matches(".ruler"), moved: 0 };
    if (!drag.measures) return;
    event.target.setPointerCapture(event.pointerId);
    unmark();
  });
  on("pointermove", ({ target, pointerType, buttons, movementX, clientX }) => {
    const time = timeAt(clientX), piece = pieceAt.get(target), x = `${share(time)}%`;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    if (buttons === 1 && drag) {
      drag.moved += Math.abs(movementX);
      if (drag.measures) return measure(drag.from, time);
      if (pointerType === "mouse") frame.scrollLeft -= movementX;
    } else if (range.width.baseVal.value === 0 && pointerType === "mouse") {
      if (piece) describe(piece);
      else say(`${time < 0 ? "−" : ""}${format(Math.abs(time))}`, ` from ${zero}`, { isBrief: true });
    }
  });
  on("touchmove", (event) => {
    const [a, b] = event.touches, before = apart;
    apart = b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
    if (b || drag?.measures) event.preventDefault();
    if (b && before) zoom(apart / before, (a.clientX + b.clientX) / 2);
  });
  on("scroll", redraw);
  new ResizeObserver(redraw).observe(frame);
  addEventListener("beforeprint", () => { zoom(0); draw(); });

  /** Show the slice that the address names, as a report's evidence does. */
  const follow = () => {
    const slice = slices.find(({ element }) => element.id && `#${element.id}` === location.hash);
    if (!slice) return;
    zoom(TARGET_PX / ((slice.width * frame.clientWidth * scale) / 100 || 1));
    frame.scrollLeft = ((slice.x + slice.width / 2) * frame.clientWidth * scale) / 100 - frame.clientWidth / 2;
    figure.scrollIntoView({ block: "nearest" });
    select(slice);
  };
  addEventListener("hashchange", follow);

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
  for (const input of all(".align input")) input.addEventListener("change", () => align(input.value));
  for (const button of all(".perfetto")) button.addEventListener("click", () => handOver(button));
  for (const element of all("[hidden]")) element.hidden = false;
  drawing.setAttribute("role", "listbox");
  frame.removeAttribute("tabindex");
  follow();
};
  document.querySelectorAll(".lab-timeline").forEach(start);
  document.addEventListener("filled", ({ target }) => target.querySelectorAll(".lab-timeline").forEach(start));
})();
