// The box on "Your trace": reads traces with the command line's own code, in a worker. Files never leave the browser:
// the page's policy lets it and its worker connect to nothing but the site, and only to get files.
(() => {
  "use strict";

  const LIMIT_BYTES = 400e6; // unpacked, of one trace, or of two that are compared; Chromium reads more, not always
  const SOME = 12; // names shown of many files
  const PHASES = ["starting Python", "reading", "writing the report"];
  const box = document.getElementById("trace-reader");
  const command = (...names) => `kinetoscope report ${names.map(quoted).join(" ")}`;
  let running = null;
  let shownUrl = "";

  const quoted = (name) => (/^[\w.,:@%+=/-]+$/.test(name) ? name : `'${name.replace(/'/g, `'"'"'`)}'`).replace(/^-/, "./-");
  const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} KB` : `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 })} MB`);

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  const button = (text, onclick, first = false) =>
    make("button", { type: "button", className: first ? "first" : "", onclick }, text);
  const listed = (files) =>
    files.slice(0, SOME).map((file) => file.name).join(", ") + (files.length > SOME ? ` and ${files.length - SOME} more` : "");

  function shell(line) {
    const copy = button("Copy", async () => {
      await navigator.clipboard.writeText(line);
      copy.textContent = "Copied";
    });
    copy.hidden = !navigator.clipboard; // not on an address without https
    return make("div", { className: "line" }, make("code", {}, line), copy);
  }

  function show(state, content, focused) {
    box.className = `trace-reader ${state}`;
    box.setAttribute("aria-busy", String(state === "reading"));
    box.replaceChildren(...content);
    focused?.focus();
  }

  /** Ends the worker and forgets the report: nothing of a trace stays in memory. */
  function release() {
    running?.terminate();
    running = null;
    if (shownUrl) URL.revokeObjectURL(shownUrl);
    shownUrl = "";
  }

  // ---- idle

  function idle(isFirst = false) {
    release();
    const input = make("input", { type: "file", accept: ".json,.gz", multiple: true, id: "trace-files" });
    input.onchange = () => read([...input.files]);
    const choose = make("label", { className: "first" }, "Choose files", input);
    const what = make("p", {}, make("code", {}, "trace.json"), " or ", make("code", {}, ".json.gz"));
    what.append(` of torch.profiler, up to ${size(LIMIT_BYTES)} unpacked. Two traces: before and after. Ranks of a job: all at once.`);
    const parts = [make("strong", {}, "Drop a trace here"), what, choose];
    if (sample) parts.push(make("p", {}, "or ", button("read one of this book’s", () => readSample(sample))));
    const promise = make("p", { className: "promise-note" }, make("b", {}, "Your trace stays on this machine."));
    promise.append(" Your browser reads it, with Python from this site, and the page may send nothing anywhere.");
    show("idle", [...parts, promise], isFirst ? null : input);
  }

  async function readSample(url) {
    try {
      const response = await fetch(url);
      if (!response.ok) throw new Error(`status ${response.status}`);
      await read([new File([await response.blob()], url.split("/").at(-1))]);
    } catch (error) {
      failed([], "This trace cannot be loaded.", String(error));
    }
  }

  // ---- reading

  async function unpackedBytes(file) {
    const begin = new Uint8Array(await file.slice(0, 2).arrayBuffer());
    if (file.size < 18 || begin[0] !== 0x1f || begin[1] !== 0x8b) return file.size;
    return Math.max(file.size, new DataView(await file.slice(-4).arrayBuffer()).getUint32(0, true));
  }

  /** What the reader need not even start for: a heading and a reason; null for files that may be read. */
  async function refusal(files) {
    const names = files.map((file) => file.name);
    const twice = names.find((name, index) => names.indexOf(name) !== index);
    if (twice) return ["Two files have one name.", `Rename one: ${twice}`];
    let sizes;
    try {
      sizes = await Promise.all(files.map(unpackedBytes));
    } catch (error) {
      return ["This file cannot be opened.", `A folder? Then drop the traces in it. The browser says: ${error.message}`];
    }
    const bytes = files.length === 2 ? sizes[0] + sizes[1] : Math.max(...sizes);
    if (bytes <= LIMIT_BYTES) return null;
    return [
      `Too large for a browser: ${size(bytes)} unpacked.`,
      `Here ${size(LIMIT_BYTES)} are the limit. In a terminal, the command below writes the same report. Or record fewer steps.`,
    ];
  }

  async function read(files) {
    if (!files.length) return;
    release();
    const refused = await refusal(files);
    if (refused) {
      failed(files, ...refused);
      return;
    }
    // Of two, the older one is taken as the one before; the result has a button to swap them.
    if (files.length === 2) files.sort((one, other) => one.lastModified - other.lastModified);
    start(files);
  }

  function start(files) {
    release();
    const bar = make("progress", { max: 100 });
    const status = make("p", { role: "status" }, PHASES[0]);
    bar.setAttribute("aria-label", "progress");
    const cancel = button("Cancel", () => idle());
    const top = make("div", { className: "top" }, make("span", { className: "name" }, listed(files)), cancel);
    show("reading", [top, bar, status], cancel);
    // A worker from a blob has the page's policy; one from an address would have none.
    const from = URL.createObjectURL(new Blob([`import ${JSON.stringify(runtime.worker)};`], { type: "text/javascript" }));
    const worker = new Worker(from, { type: "module" });
    running = worker;
    worker.onmessage = ({ data }) => {
      URL.revokeObjectURL(from);
      if (worker !== running) return;
      if (data.progress !== undefined) {
        const [, percent] = data.progress.match(/ (\d+) %$/) || [];
        if (data.progress) status.textContent = data.progress;
        if (percent) bar.value = Number(percent);
        else bar.removeAttribute("value");
      } else if (data.report) {
        result(files, data.report);
      } else if (data.error) {
        failed(files, "kinetoscope cannot read this.", data.error);
      } else if (data.crash) {
        failed(files, "The browser could not finish.", `It may lack memory; a terminal has more. (${data.crash})`);
      } else {
        failed(files, "Python could not be loaded from this site.", `Is the network there? (${data.unavailable})`);
      }
    };
    worker.onerror = (event) => {
      event.preventDefault();
      if (worker === running) failed(files, "Python could not be started.", "This browser may be too old, or the site is not reachable.");
    };
    worker.postMessage({ files, runtime });
  }

  // ---- result and errors

  async function result(files, report) {
    release(); // the worker's memory
    const name = files.length > 1 ? "traces.report.html" : `${files[0].name.replace(/(\.json)?(\.gz)?$/, "")}.report.html`;
    shownUrl = URL.createObjectURL(report);
    const frame = make("iframe", { title: `Report: ${listed(files)}`, src: shownUrl });
    frame.setAttribute("sandbox", "allow-scripts allow-popups allow-popups-to-escape-sandbox");
    const save = make("a", { className: "first", href: shownUrl, download: name }, "Save");
    const top = make("div", { className: "top" });
    top.append(make("span", { className: "name" }, name), make("span", { className: "size" }, `${size(report.size)}, no requests`), save);
    if (document.fullscreenEnabled) top.append(button("Full screen", () => frame.requestFullscreen()));
    const isComparison = files.length === 2 && (await report.slice(0, 4096).text()).includes(" compared: report</title>");
    if (isComparison) top.append(button("Swap before and after", () => start(files.reverse())));
    top.append(button("Another trace", () => idle()));
    show("result", [top, frame], save);
  }

  function failed(files, heading, reason) {
    release();
    const names = files.map((file) => file.name);
    const line = names.length ? command(...names) + (names.length > 1 ? " -o report.html" : "") : "";
    const alert = make("div", { role: "alert" }, make("b", {}, heading), make("p", {}, reason));
    const again = button("Try another file", () => idle(), true);
    show("failed", [make("span", { className: "name" }, listed(files)), alert, ...(line ? [shell(line)] : []), again], again);
  }

  // ---- dropping, anywhere on the page

  function listen() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    let over = 0;
    const mark = (change) => {
      over = Math.max(0, over + change);
      box.classList.toggle("over", over > 0);
    };
    document.addEventListener("dragenter", (event) => hasFiles(event) && mark(1));
    document.addEventListener("dragleave", (event) => hasFiles(event) && mark(-1));
    document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
    document.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      mark(-over);
      box.scrollIntoView({ block: "nearest" });
      read([...event.dataTransfer.files]);
    });
  }

  function resolved({ base, wheels, integrity }) {
    const absolute = (url) => new URL(url, document.baseURI).href;
    const hashes = Object.fromEntries(Object.entries(integrity).map(([url, hash]) => [absolute(url), hash]));
    return { base: absolute(base), wheels: wheels.map(absolute), integrity: hashes, worker: absolute(script.replace("trace_reader", "trace_worker")) };
  }

  const script = document.currentScript.src;
  const sample = box.querySelector("a[data-sample]")?.href;
  const missing = box.querySelector(".missing");
  const runtime = box.dataset.runtime ? resolved(JSON.parse(box.dataset.runtime)) : null;
  if (runtime && window.Worker && window.WebAssembly) {
    idle(true);
    listen();
  } else if (missing) {
    missing.textContent = "This copy of the site was built without Python for browsers: make docs adds it where npm is installed.";
  }
})();
