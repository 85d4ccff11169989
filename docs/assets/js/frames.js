// A table wider than its frame: a button counts the columns that are out of sight and leads to them, and what the edge
// cuts fades. The contents of a page fade while something wide covers them.
(() => {
  const contents = document.querySelector(".md-sidebar--secondary");
  const beside = matchMedia("(min-width: 76.25em)");
  const columns = (frame) => {
    const right = frame.getBoundingClientRect().right;
    const heads = [...frame.querySelectorAll("thead tr > *")].map((head) => head.getBoundingClientRect());
    const hidden = heads.filter((head) => head.right > right + 1);
    return () => {
      frame.style.setProperty("--fade", `${hidden.length ? Math.max(0, right - hidden[0].left) : 0}px`);
      frame.more.hidden = !hidden.length;
      frame.more.textContent = `${hidden.length} more column${hidden.length === 1 ? "" : "s"} →`;
    };
  };
  // A table whose maker did not say how wide it is becomes cards where it does not fit.
  const cards = (frame) => {
    frame.fitted = frame.clientWidth;
    if (frame.scrollWidth <= frame.clientWidth + 1) return () => {};
    return () => {
      const heads = [...frame.querySelectorAll("thead tr > *")].map((head) => head.textContent);
      for (const row of frame.querySelectorAll("tbody tr")) {
        [...row.cells].slice(1).forEach((cell, index) => (cell.dataset.head = heads[index + 1] ?? ""));
      }
      frame.classList.add("cards");
    };
  };
  // All are measured before one is changed: else a browser lays out the page for each.
  const sizes = new ResizeObserver((entries) => {
    const frames = entries.map(({ target }) => target), wide = frames.filter(({ more }) => more);
    const fitting = frames.filter((frame) => !frame.more && frame.fitted !== frame.clientWidth);
    for (const frame of fitting) frame.classList.remove("cards");
    for (const change of [...wide.map(columns), ...fitting.map(cards)]) change();
  });
  const watch = () => {
    for (const frame of document.querySelectorAll(".md-typeset .lab-table:not([class*=needs-])")) {
      if (!frame.querySelector(".id")) sizes.observe(frame); // the ledger's have a layout of their own
    }
    for (const frame of document.querySelectorAll(".lab-table.wide")) {
      if (frame.more) continue;
      const onclick = () => frame.scrollBy({ left: frame.clientWidth / 2, behavior: "smooth" });
      frame.more = make("button", { type: "button", className: "more-columns", hidden: true, onclick });
      frame.before(frame.more);
      frame.addEventListener("scroll", () => update(frame), { passive: true });
      sizes.observe(frame);
    }
  };
  const cover = () => {
    const { bottom } = contents.querySelector(".md-nav").getBoundingClientRect();
    const { left, top } = contents.getBoundingClientRect();
    contents.classList.toggle("covered", beside.matches && [...seen].some((wide) => {
      const box = wide.getBoundingClientRect();
      return box.right > left && box.bottom > top && box.top < bottom;
    }));
  };
  const seen = new Set();
  const views = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) seen[isIntersecting ? "add" : "delete"](target);
    cover();
  });
  const follow = () => {
    watch();
    for (const wide of document.querySelectorAll(".lab:has(.wide, .lab-timeline, .roofline), .trace-reader.result")) views.observe(wide);
  };
  follow();
  document.addEventListener("filled", follow);
  document.addEventListener("toggle", follow, true);
  let asked = 0;
  if (contents) addEventListener("scroll", () => (asked ||= requestAnimationFrame(() => ((asked = 0), cover()))), { passive: true });
})();
