// Loads the theme's search worker, which the address names, with the first message: a reader who never searches does not
// need it.
addEventListener("message", ({ data }) => {
  const name = location.search.split("/").pop();
  if (!/^search\.[0-9a-f]+\.min\.js$/.test(name)) throw new Error(`not the theme's search worker: ${name}`);
  importScripts(`../javascripts/workers/${name}`);
  dispatchEvent(new MessageEvent("message", { data })); // it listens from now on
}, { once: true });
