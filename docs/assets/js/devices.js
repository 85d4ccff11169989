// One switch in the header chooses the device of all figures and of the values in sentences, on this page and the next.
// Without it, panels of other devices are folds. Panels of a device that nobody has chosen yet are text in a <noscript>;
// once chosen they are put in place, and "filled" tells other scripts. A link into such a panel chooses its device.
(() => {
  const KEPT = "device";
  const names = new Map(), asked = new WeakSet();
  for (const fold of document.querySelectorAll("details.device")) {
    const panel = make("div", { className: "device", hidden: true });
    Object.assign(panel.dataset, fold.dataset);
    panel.append(...[...fold.childNodes].slice(1)); // without its summary
    fold.replaceWith(panel);
  }
  for (const answer of document.querySelectorAll(".device.other")) {
    answer.hidden = true;
    answer.classList.remove("other");
  }
  const parts = document.querySelectorAll(".device, data[data-device]");
  for (const { dataset } of parts) if (dataset.name) names.set(dataset.device, dataset.name);
  if (names.size < 2) return;

  const options = [...names].map(([device, name]) => new Option(name, device));
  const select = make("select", { ariaLabel: "GPU of all figures" }, ...options);
  const fill = (panel) => {
    const held = panel.querySelector(":scope > noscript");
    if (!held || asked.has(held)) return;
    asked.add(held);
    heldBack(held, ({ childNodes }) => {
      held.replaceWith(...childNodes);
      panel.dispatchEvent(new Event("filled", { bubbles: true }));
    });
  };
  const choose = (device) => {
    if (!names.has(device)) return;
    select.value = device;
    for (const part of parts) {
      part.hidden = part.dataset.device !== device;
      if (!part.hidden) fill(part);
    }
    document.dispatchEvent(new Event("device"));
  };
  // The target is in a panel that is hidden, or not in the page yet: then its id has the device's name.
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1)), target = document.getElementById(id);
    const hidden = target?.closest(".device[hidden]");
    const device = target ? hidden?.dataset.device : [...names.keys()].find((each) => id.includes(each));
    if (!device) return;
    const arrive = () => {
      if (!document.getElementById(id)) return;
      document.removeEventListener("filled", arrive);
      location.replace(location.hash); // the element that it names is here now
      if (!target) dispatchEvent(new HashChangeEvent("hashchange")); // folds around it open
    };
    document.addEventListener("filled", arrive);
    choose(device);
    arrive();
  };

  document.querySelector(".md-header__title")?.after(make("label", { className: "device-switch" }, make("span", {}, "Measured on"), select));
  select.addEventListener("change", () => {
    choose(select.value);
    stored(KEPT, select.value);
  });
  choose(stored(KEPT));
  addEventListener("hashchange", follow);
  follow();
})();
