// What the theme leaves undone: this site's address in shell lines; names for its search, notes and code buttons; a way
// on below the results of a search; no typical heights above a link's section.
(() => {
  if (location.hash) document.documentElement.classList.add("jumped");
  addEventListener("load", () => {
    const name = (selector, text) => document.querySelectorAll(selector).forEach((element, index) => {
      element.setAttribute("aria-label", `${text} ${index + 1}`);
    });
    name(".md-annotation__index", "Note");
    name(".md-code__nav", "Code block");
  });
  // The theme scrolls the list of pages, then or before gives it a height, and cuts an entry in half.
  const list = document.querySelector(".md-sidebar--primary .md-sidebar__scrollwrap"), FADE_PX = 8;
  const whole = () => {
    const edge = list.querySelector(".md-nav__title").getBoundingClientRect().bottom + FADE_PX;
    const places = [...list.querySelectorAll(".md-nav__link")].map((link) => link.getBoundingClientRect());
    const cut = places.find(({ top, bottom }) => top < edge && bottom > edge - FADE_PX);
    if (cut) list.scrollTop -= Math.round(edge - cut.top);
  };
  list?.addEventListener("scroll", whole, { once: true });
  if (list) new ResizeObserver(whole).observe(list);
  const search = document.querySelector(".md-search");
  const config = document.getElementById("__config");
  if (!config) return;
  const root = new URL(`${JSON.parse(config.textContent).base}/`, location);
  document.querySelectorAll("[data-site]").forEach((place) => { place.textContent = root.href; });
  if (!search) return;
  search.setAttribute("aria-label", "Search");
  const link = make("a", { href: new URL("#what-do-you-see", root).href }, "Start from what you see");
  search.querySelector(".md-search-result").after(make("p", { className: "search-way-on" }, "Not found? ", link));
})();
