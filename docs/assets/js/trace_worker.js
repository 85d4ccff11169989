// Runs `kinetoscope report` of the site's own wheel in Pyodide, off the page's thread. It works once: the page ends it
// after each report, which gives all of its memory back.
const PACKAGES = "/packages";
const OUTPUT = "/report.html";
const COMMAND = `
import os, sys
sys.path.append(packages)
from kinetoscope.__main__ import main
os.chdir("/traces")
main(["report", "-o", output, "--", *names])
`;

/** The report for a frame without an address: links within it keep the frame, others open a tab. */
function linksOutOfFrame(html) {
  return html.replace(/<a href="#/g, '<a href="about:srcdoc#').replace(/<a href="http/g, '<a target="_blank" href="http');
}

/** Starts Python from files that the page has: their name -> Blob. Nothing is asked of any network. */
async function start(loadPyodide, createPyodideModule, runtime, site) {
  self.fetch = async (request) => {
    const name = String(request.url ?? request).split("/").at(-1);
    if (!runtime[name]) throw new Error(`Python asks for ${name}`);
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(runtime[name], { headers: { "Content-Type": type } });
  };
  const python = await loadPyodide({ indexURL: site, createPyodideModule, env: { KINETOSCOPE_SITE: site } });
  for (const [name, wheel] of Object.entries(runtime)) {
    if (name.endsWith(".whl")) python.unpackArchive(await wheel.arrayBuffer(), "zip", { extractDir: PACKAGES });
  }
  return python;
}

/** Runs the command on files that stay where they are: a block is read when Python reads it. */
function report(python, files) {
  python.FS.mkdir("/traces");
  python.FS.mount(python.FS.filesystems.WORKERFS, { files }, "/traces");
  const decoder = new TextDecoder();
  let errors = "";
  const write = (bytes) => {
    const text = decoder.decode(bytes, { stream: true });
    if (text.startsWith("\r")) self.postMessage({ progress: text.replace(/\r|\x1b\[K/g, "").trim() });
    else errors += text;
    return bytes.length;
  };
  python.setStderr({ write, isatty: true }); // a terminal, so that the command reports its progress
  python.setStdout({ write: (bytes) => bytes.length });
  const names = files.map((file) => file.name);
  const code = python.runPython(COMMAND, { locals: python.toPy({ packages: PACKAGES, names, output: OUTPUT }) });
  if (code) return { error: errors.trim().replace(/^error: /, "") };
  const html = python.FS.readFile(OUTPUT, { encoding: "utf8" });
  return { report: new Blob([html], { type: "text/html" }), inFrame: linksOutOfFrame(html) };
}

export function serve(loadPyodide, createPyodideModule) {
  // Where WebAssembly does not start, Pyodide waits forever.
  self.onunhandledrejection = ({ reason }) => self.postMessage({ unavailable: String(reason) });
  self.onmessage = async ({ data: { files, runtime, site } }) => {
    let python = null;
    try {
      python = await start(loadPyodide, createPyodideModule, runtime, site);
      self.postMessage({ progress: "reading" });
      self.postMessage(report(python, files));
    } catch (error) {
      self.postMessage({ [python ? "crash" : "unavailable"]: String(error) });
    }
  };
}
