// The ledger's filters: text, chapter, scope, verdict, device. The choice stands in the address, so that it can be linked,
// and is kept on this device for the next visit. Chapters with a claim that fits open; without a filter all are folded.
(() => {
  const ledger = document.querySelector(".ledger");
  if (!ledger) return;
  const KEPT = "ledger filters";
  const chapters = [...ledger.querySelectorAll("details")];
  const entries = [...ledger.querySelectorAll("li")].map((item) => ({
    item,
    of: item.dataset,
    text: item.textContent.toLowerCase(),
    verdicts: [...item.querySelectorAll("[data-verdict]")],
  }));
  const count = make("p", { role: "status" });
  const everything = make("button", { type: "button" }, "Show all");
  const bar = make("form", { className: "ledger-filters", onsubmit: (event) => event.preventDefault() });
  const text = make("input", { type: "search", oninput: () => filter(false), onchange: () => filter(true) });
  const fields = { text };
  const fold = make("button", { type: "button", className: "ledger-fold", ariaExpanded: "false" }, "Filter");
  fold.addEventListener("click", () => { fold.ariaExpanded = String(fold.ariaExpanded !== "true"); });
  bar.append(fold); // ledger.css shows it on narrow screens only
  bar.append(make("label", {}, "text ", text));

  const valuesOf = {
    chapter: entries.map(({ of }) => of.chapter),
    scope: entries.map(({ of }) => of.scope),
    verdict: entries.flatMap(({ verdicts }) => verdicts.map(({ dataset }) => dataset.verdict)),
    device: entries.flatMap(({ verdicts }) => verdicts.map(({ dataset }) => dataset.device)),
  };
  for (const [name, all] of Object.entries(valuesOf)) {
    const values = [...new Set(all)];
    if (values.length < 2) continue;
    const options = [new Option("all", ""), ...values.map((value) => new Option(value))];
    fields[name] = make("select", { onchange: () => filter(true) }, ...options);
    bar.append(make("label", {}, `${name} `, fields[name]));
  }

  const filter = (write) => {
    const chosen = Object.entries(fields).map(([name, field]) => [name, field.value.trim()]).filter(([, value]) => value);
    const words = text.value.toLowerCase().split(/\s+/);
    const fits = (data) => chosen.every(([name, value]) => data[name] === undefined || data[name] === value);
    for (const { item, of, text, verdicts } of entries) {
      for (const verdict of verdicts) verdict.hidden = !fits(verdict.dataset);
      item.hidden = !fits(of) || verdicts.every(({ hidden }) => hidden) || !words.every((word) => text.includes(word));
    }
    for (const chapter of chapters) {
      chapter.hidden = !chapter.querySelector("li:not([hidden])");
      chapter.open = chosen.length > 0;
    }
    count.textContent = `${entries.filter(({ item }) => !item.hidden).length} of ${entries.length} claims`;
    everything.hidden = !chosen.length;
    if (!write) return;
    const hash = new URLSearchParams(chosen).toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    stored(KEPT, hash);
  };
  const choose = (hash) => {
    const wanted = new URLSearchParams(hash);
    for (const [name, field] of Object.entries(fields)) {
      const value = wanted.get(name) ?? "";
      field.value = !field.options || [...field.options].some((option) => option.value === value) ? value : "";
    }
  };

  // `#verdict=differs&chapter=mlp` filters; any other fragment names a verdict, which has to be in sight.
  const follow = () => {
    const hash = location.hash.slice(1), named = document.getElementById(hash);
    choose(hash || stored(KEPT) || "");
    filter(false);
    const filtered = hash && Object.values(fields).some(({ value }) => value);
    if (named?.closest(".ledger details")) named.closest("details").open = true;
    (filtered ? ledger : named)?.scrollIntoView();
  };

  everything.addEventListener("click", () => {
    choose("");
    filter(true);
    text.focus();
  });
  bar.append(count, everything);
  ledger.prepend(bar);
  follow();
  addEventListener("hashchange", follow);
})();
