// The theme's search: a name for its dialog, and below its results a way on for those who do not find what they seek.
(() => {
  const search = document.querySelector(".md-search");
  const config = document.getElementById("__config");
  if (!search || !config) return;
  search.setAttribute("aria-label", "Search");
  const root = new URL(`${JSON.parse(config.textContent).base}/`, location);
  const link = { href: new URL("#what-do-you-see", root).href, textContent: "Start from what you see" };
  const way = Object.assign(document.createElement("p"), { className: "search-way-on", textContent: "Not found? " });
  way.append(Object.assign(document.createElement("a"), link));
  search.querySelector(".md-search-result").after(way);
})();
