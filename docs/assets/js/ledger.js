// The ledger's filters: chapter, scope, verdict, device. The choice stands in the address, so that it can be linked, and is
// kept on this device for the next visit.
(() => {
  const ledger = document.querySelector(".ledger");
  if (!ledger) return;
  const KEPT = "ledger filters";
  const entries = [...ledger.querySelectorAll("li")].map((item) => ({
    item,
    of: item.dataset,
    verdicts: [...item.querySelectorAll("[data-verdict]")],
  }));
  const count = make("p", { role: "status" });
  const everything = make("button", { type: "button" }, "Show all");
  const bar = make("form", { className: "ledger-filters" });

  const valuesOf = {
    chapter: entries.map(({ of }) => of.chapter),
    scope: entries.map(({ of }) => of.scope),
    verdict: entries.flatMap(({ verdicts }) => verdicts.map(({ dataset }) => dataset.verdict)),
    device: entries.flatMap(({ verdicts }) => verdicts.map(({ dataset }) => dataset.device)),
  };
  const selects = {};
  for (const [name, all] of Object.entries(valuesOf)) {
    const values = [...new Set(all)];
    if (values.length < 2) continue;
    const options = [new Option("all", ""), ...values.map((value) => new Option(value))];
    selects[name] = make("select", { onchange: () => filter(true) }, ...options);
    bar.append(make("label", {}, `${name} `, selects[name]));
  }

  const filter = (write) => {
    const chosen = Object.entries(selects).filter(([, select]) => select.value);
    const fits = (data) => chosen.every(([name, { value }]) => data[name] === undefined || data[name] === value);
    for (const { item, of, verdicts } of entries) {
      for (const verdict of verdicts) verdict.hidden = !fits(verdict.dataset);
      item.hidden = !fits(of) || verdicts.every(({ hidden }) => hidden);
    }
    for (const section of ledger.querySelectorAll("section")) {
      section.hidden = !section.querySelector("li:not([hidden])");
    }
    count.textContent = `${entries.filter(({ item }) => !item.hidden).length} of ${entries.length} claims`;
    everything.hidden = !chosen.length;
    if (!write) return;
    const hash = new URLSearchParams(chosen.map(([name, select]) => [name, select.value])).toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    stored(KEPT, hash);
  };
  const choose = (hash) => {
    const wanted = new URLSearchParams(hash);
    for (const [name, select] of Object.entries(selects)) {
      const value = wanted.get(name) ?? "";
      select.value = [...select.options].some((option) => option.value === value) ? value : "";
    }
  };

  // `#verdict=differs&chapter=mlp` filters; any other fragment names a verdict, which has to be in sight.
  const follow = () => {
    const hash = location.hash.slice(1), named = document.getElementById(hash);
    choose(hash || stored(KEPT) || "");
    filter(false);
    const filtered = hash && Object.values(selects).some((select) => select.value);
    (filtered ? ledger : named)?.scrollIntoView();
  };

  everything.addEventListener("click", () => {
    choose("");
    filter(true);
    Object.values(selects)[0]?.focus();
  });
  bar.append(count, everything);
  ledger.prepend(bar);
  follow();
  addEventListener("hashchange", follow);
})();
