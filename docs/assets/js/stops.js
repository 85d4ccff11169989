// Fewer stops of the Tab key: what belongs together (GROUPS) is one stop, in which the arrow keys lead on. Of tables, those
// that scroll are a stop.
(() => {
  const LISTS = ".md-nav--secondary, .md-sidebar--primary .md-nav--primary";
  const GROUPS = `.lab-table tbody, .traces, .verdicts, .ledger ul, .zoom, ${LISTS}`;
  const STOPS = "a[href], button, summary";
  const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

  const isOf = (group) => (stop) => stop.closest(`${GROUPS}, [popover]`) === group && !stop.closest(".md-nav__title");
  const inGroup = (group) => [...group.querySelectorAll(STOPS)].filter(isOf(group));
  const isFolded = (stop) => {
    const fold = stop.closest("details:not([open])");
    return fold && (!stop.matches("summary") || fold.parentElement.closest("details:not([open])"));
  };
  const scrolls = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth + 1) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });

  const gather = (root) => {
    for (const group of root.querySelectorAll(GROUPS)) {
      const [, ...others] = inGroup(group).filter((stop) => !isFolded(stop));
      for (const stop of others) stop.tabIndex = -1;
    }
    for (const frame of root.querySelectorAll(".lab-table")) {
      frame.removeAttribute("tabindex");
      scrolls.observe(frame);
    }
  };

  document.addEventListener("focusin", ({ target }) => {
    const group = target.matches(STOPS) && !target.closest("[popover]") && target.closest(GROUPS);
    if (group) for (const stop of inGroup(group)) stop.tabIndex = stop === target || isFolded(stop) ? 0 : -1;
  });
  document.addEventListener("keydown", (event) => {
    const { target, key, ctrlKey, metaKey, altKey, shiftKey } = event;
    const group = STEPS[key] && !(ctrlKey || metaKey || altKey || shiftKey) && target.matches(STOPS) && target.closest(GROUPS);
    const stops = group ? inGroup(group).filter((stop) => !isFolded(stop)) : [];
    const next = stops.includes(target) && stops[stops.indexOf(target) + STEPS[key]];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  gather(document);
  document.addEventListener("filled", ({ target }) => gather(target));
  document.addEventListener("toggle", ({ target }) => target.open && gather(target), true);
})();
