// The box on "Your trace": reads traces with the command line's own code, in a worker. They never leave the browser: the
// page's policy lets it and its worker connect to this site alone, and both only get files from it.
(() => {
  "use strict";

  const LIMIT_BYTES = 1e9; // unpacked, of one trace or of two compared: what Chromium was seen to read, in 0.6 GB
  const INVITATION = "Drop a trace here";
  const SOME = 12; // names shown of many files
  const box = document.getElementById("trace-reader");
  let runtime = null;
  let running = null;
  let shownUrl = "";

  /** A file's name as a shell takes it. */
  function quoted(name) {
    const path = name.replace(/^-/, "./-");
    return /^[\w.,:@%+=/-]+$/.test(path) ? path : `'${path.replaceAll("'", `'"'"'`)}'`;
  }
  const UNITS = [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]];
  const size = (bytes) => {
    const [unit, name] = UNITS.find(([each]) => bytes >= each) || UNITS.at(-1);
    return `${Number((bytes / unit).toPrecision(3))} ${name}`;
  };

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  const button = (text, onclick, first = false) =>
    make("button", { type: "button", className: first ? "first" : "", onclick }, text);
  const listed = (traces) =>
    traces.slice(0, SOME).map((file) => file.name).join(", ") + (traces.length > SOME ? ` and ${traces.length - SOME} more` : "");

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
    URL.revokeObjectURL(shownUrl);
  }

  // ---- idle

  function idle(isFirst = false) {
    release();
    const input = make("input", { type: "file", accept: ".json,.gz", multiple: true, id: "trace-files" });
    input.onchange = () => read([...input.files]);
    const choose = make("label", { className: "first" }, "Choose files", input);
    const what = make("p", {}, make("code", {}, "trace.json"), " or ", make("code", {}, ".json.gz"));
    what.append(` of torch.profiler, up to ${size(LIMIT_BYTES)} unpacked. Choose two traces to compare them, or the traces of all ranks of a job.`);
    const parts = [make("strong", {}, INVITATION), what, choose];
    if (sample) parts.push(make("p", {}, "or ", button("try a trace of this book", () => readSample(sample))));
    const promise = make("p", {}, make("b", {}, "Your trace stays on this machine."));
    promise.append(" Your browser loads Python from this site to read the trace. The page can connect to no other site.");
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
  async function refusal(traces) {
    const names = traces.map((file) => file.name);
    const twice = names.find((name, index) => names.indexOf(name) !== index);
    if (twice) return ["Two files have the same name.", `Rename one: ${twice}`];
    let sizes;
    try {
      sizes = await Promise.all(traces.map(unpackedBytes));
    } catch (error) {
      return ["This file cannot be opened.", `Is it a folder? Then drop the traces in the folder. The browser says: ${error.message}`];
    }
    const bytes = traces.length === 2 ? sizes[0] + sizes[1] : Math.max(...sizes);
    if (bytes <= LIMIT_BYTES) return null;
    return [
      `Too large for a browser: ${size(bytes)} unpacked.`,
      `The limit is ${size(LIMIT_BYTES)}. In a terminal, the command below writes the same report. Or record fewer steps.`,
    ];
  }

  async function read(traces) {
    if (!traces.length) return;
    release();
    const refused = await refusal(traces);
    if (refused) {
      failed(traces, ...refused);
      return;
    }
    // Of two, the older one is taken as the one before; the result has a button to swap them.
    if (traces.length === 2) traces.sort((one, other) => one.lastModified - other.lastModified);
    start(traces);
  }

  /** Python and the packages, name -> Blob: each of the hash that the page names, loaded when first needed. */
  async function load() {
    const loaded = await Promise.all(Object.entries(files).map(async ([url, integrity]) => {
      const get = async (cache) => {
        const response = await fetch(url, { integrity, cache });
        if (!response.ok) throw new Error(`${url}: status ${response.status}`);
        return response.blob();
      };
      return [url.split("/").at(-1), await get("default").catch(() => get("reload"))]; // a cache may hold an older wheel
    }));
    return Object.fromEntries(loaded);
  }

  /** A worker of these modules. From a blob it has the page's policy; from an address of the site it would have none. */
  function newWorker(python) {
    const urls = [];
    const url = (...parts) => {
      urls.push(URL.createObjectURL(new Blob(parts, { type: "text/javascript" })));
      return urls.at(-1);
    };
    const [create, pyodide, own] = ["pyodide.asm.mjs", "pyodide.mjs", "trace_worker.js"].map((name) => url(python[name]));
    const imports = `import create from "${create}"; import { loadPyodide } from "${pyodide}"; import { serve } from "${own}";`;
    const worker = new Worker(url(imports, " serve(loadPyodide, create);"), { type: "module" });
    worker.addEventListener("message", () => urls.forEach(URL.revokeObjectURL), { once: true });
    return worker;
  }

  async function start(traces) {
    release();
    const bar = make("progress", { max: 100 });
    const status = make("p", { role: "status" }, runtime ? "starting Python" : "loading Python from this site, once");
    bar.setAttribute("aria-label", "progress");
    const cancel = button("Cancel", () => idle());
    const top = make("div", { className: "top" }, make("span", { className: "name" }, listed(traces)), cancel);
    show("reading", [top, bar, status], cancel);
    const isShown = () => status.isConnected; // until it is canceled, or other files are dropped
    try {
      runtime ??= await load();
    } catch (error) {
      if (isShown()) failed(traces, "Python cannot be loaded from this site.", `Check the network connection. (${error.message})`);
      return;
    }
    if (!isShown()) return;
    status.textContent = "starting Python";
    const worker = (running = newWorker(runtime));
    worker.onerror = (event) => {
      event.preventDefault();
      if (isShown()) failed(traces, "Python cannot be started.", "This browser may be too old.");
    };
    worker.onmessage = ({ data }) => {
      if (!isShown()) return;
      if (data.report) result(traces, data);
      else if (data.error) failed(traces, "kinetoscope cannot read this file.", data.error);
      else if (data.unavailable) failed(traces, "Python cannot be started.", `This browser may be too old. (${data.unavailable})`);
      else if (data.crash) failed(traces, "The browser could not finish.", `The browser may lack memory. A terminal has more. (${data.crash})`);
      else if (data.progress) {
        const [, percent] = data.progress.match(/ (\d+) %$/) || [];
        status.textContent = data.progress;
        if (percent) bar.value = Number(percent);
        else bar.removeAttribute("value");
      }
    };
    worker.postMessage({ files: traces, runtime, site });
  }

  // ---- result and errors

  function result(traces, { report, inFrame }) {
    release(); // the worker's memory
    const name = traces.length > 1 ? "traces.report.html" : `${traces[0].name.replace(/(\.json)?(\.gz)?$/, "")}.report.html`;
    shownUrl = URL.createObjectURL(report);
    const scheme = document.body.dataset.mdColorScheme === "slate" ? "dark" : "light"; // the page's, of its own button
    const srcdoc = inFrame.replace("<html ", `<html style="color-scheme: ${scheme}" `);
    const frame = make("iframe", { title: `Report: ${listed(traces)}`, srcdoc });
    frame.setAttribute("sandbox", "allow-scripts allow-popups allow-popups-to-escape-sandbox");
    const save = make("a", { className: "first", href: shownUrl, download: name }, "Save");
    const top = make("div", { className: "top" });
    top.append(make("span", { className: "name" }, name), make("span", { className: "size" }, `one file, ${size(report.size)}`), save);
    if (document.fullscreenEnabled) top.append(button("Full screen", () => frame.requestFullscreen()));
    const isComparison = traces.length === 2 && inFrame.includes(" compared: report</title>");
    if (isComparison) top.append(button("Swap before and after", () => start(traces.reverse())));
    top.append(button("Another trace", () => idle()));
    show("result", [top, frame], save);
    box.scrollIntoView();
    box.dispatchEvent(new Event("filled", { bubbles: true })); // frames.js makes room
  }

  function failed(traces, heading, reason) {
    release();
    const names = traces.map((file) => quoted(file.name));
    const line = ["kinetoscope report", ...names, ...(names.length > 1 ? ["-o report.html"] : [])].join(" ");
    const alert = make("div", { role: "alert" }, make("b", {}, heading), make("p", {}, reason));
    const again = button("Try another file", () => idle(), true);
    show("failed", [make("span", { className: "name" }, listed(traces)), alert, ...(names.length ? [shell(line)] : []), again], again);
  }

  // ---- dropping, anywhere on the page

  function listen() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    let over = 0;
    const mark = (change) => {
      over = Math.max(0, over + change);
      box.classList.toggle("over", over > 0);
      const invitation = box.querySelector("strong");
      if (invitation) invitation.textContent = over ? "Let go to read it here" : INVITATION;
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

  const site = new URL("../../", document.currentScript.src).href;
  const files = box.dataset.files ? JSON.parse(box.dataset.files) : null;
  const sample = box.querySelector("a[data-sample]")?.href;
  const missing = box.querySelector(".missing");
  if (files && window.Worker && window.WebAssembly) {
    idle(true);
    listen();
  } else if (missing) {
    missing.textContent = files
      ? "This page needs WebAssembly, which this browser cannot run."
      : "This copy of the site was built without Python for browsers: make docs adds it where npm is installed.";
  }
})();
