// The ledger's filters: chapter, scope, verdict, device. The choice stands in the address, so that it can be linked.
(() => {
  const ledger = document.querySelector(".ledger");
  if (!ledger) return;
  const rows = [...ledger.querySelectorAll("[data-verdict]")].map((id) => ({ row: id.closest("tr"), of: id.dataset }));
  const bar = Object.assign(document.createElement("form"), { className: "ledger-filters" });
  const count = document.createElement("p");
  count.setAttribute("role", "status");

  const selects = {};
  for (const name of ["chapter", "scope", "verdict", "device"]) {
    const values = [...new Set(rows.map(({ of }) => of[name]))];
    if (values.length < 2) continue;
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...values.map((value) => new Option(value)));
    select.addEventListener("change", () => filter(true));
    const label = document.createElement("label");
    label.append(`${name} `, select);
    bar.append(label);
    selects[name] = select;
  }

  const filter = (write) => {
    const chosen = Object.entries(selects).filter(([, select]) => select.value);
    for (const { row, of } of rows) row.hidden = chosen.some(([name, select]) => of[name] !== select.value);
    count.textContent = `${rows.filter(({ row }) => !row.hidden).length} of ${rows.length} shown`;
    if (!write) return;
    const hash = new URLSearchParams(chosen.map(([name, select]) => [name, select.value])).toString();
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  };

  // `#verdict=differs&chapter=mlp` filters; any other fragment names a row, which has to be in sight.
  const follow = () => {
    const wanted = new URLSearchParams(location.hash.slice(1));
    for (const [name, select] of Object.entries(selects)) {
      const value = wanted.get(name) ?? "";
      select.value = [...select.options].some((option) => option.value === value) ? value : "";
    }
    filter(false);
    const filtered = Object.values(selects).some((select) => select.value);
    (filtered ? ledger : document.getElementById(location.hash.slice(1)))?.scrollIntoView();
  };

  bar.append(count);
  ledger.prepend(bar);
  follow();
  addEventListener("hashchange", follow);
})();
