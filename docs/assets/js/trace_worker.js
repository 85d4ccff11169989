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

/** Fetches a file of the site only if its hash is the one that the page names. */
function pinned(integrity) {
  const original = self.fetch.bind(self);
  return (url, options) => {
    const known = integrity[new URL(url, import.meta.url).href];
    return known
      ? original(url, { ...options, integrity: known, cache: "force-cache" })
      : Promise.reject(new Error(`${url} has no known hash`));
  };
}

async function start({ base, wheels, integrity }) {
  self.fetch = pinned(integrity);
  const { loadPyodide } = await import(`${base}pyodide.mjs`);
  const [python, ...archives] = await Promise.all([
    loadPyodide({ indexURL: base }),
    ...wheels.map(async (wheel) => (await fetch(wheel)).arrayBuffer()),
  ]);
  for (const archive of archives) python.unpackArchive(archive, "zip", { extractDir: PACKAGES });
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
    if (text.startsWith("\r")) self.postMessage({ progress: text.replace(/^\r\x1b\[K/, "") });
    else errors += text;
    return bytes.length;
  };
  python.setStderr({ write, isatty: true }); // a terminal, so that the command reports its progress
  python.setStdout({ write: (bytes) => bytes.length });
  const names = files.map((file) => file.name);
  const code = python.runPython(COMMAND, { locals: python.toPy({ packages: PACKAGES, names, output: OUTPUT }) });
  if (code) return { error: errors.trim().replace(/^error: /, "") };
  return { report: new Blob([python.FS.readFile(OUTPUT)], { type: "text/html" }) };
}

self.onmessage = async ({ data: { files, runtime } }) => {
  try {
    const python = await start(runtime);
    self.postMessage({ progress: "reading" });
    try {
      self.postMessage(report(python, files));
    } catch (error) {
      self.postMessage({ crash: String(error) });
    }
  } catch (error) {
    self.postMessage({ unavailable: String(error) });
  }
};
