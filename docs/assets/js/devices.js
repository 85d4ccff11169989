// A device's tab chooses the device everywhere: in all tabs and in the values in sentences, and on the next page. (The theme
// links tabs, too, but only those in sight.) Panels of a device that nobody has chosen yet are text in a <noscript>; once
// chosen they are put in place, and "filled" tells other scripts. A link into such a panel chooses its device.
(() => {
  const KEPT = "device";
  const inputs = document.querySelectorAll(".tabbed-set.devices > input[data-device]");
  const values = document.querySelectorAll("data[data-device]");
  const asked = new WeakSet();

  const fill = (input) => {
    const index = [...input.parentNode.querySelectorAll(":scope > input")].indexOf(input);
    const block = input.parentNode.querySelector(":scope > .tabbed-content").children[index];
    const held = block.querySelector(":scope > noscript");
    if (!held || asked.has(held)) return;
    asked.add(held);
    heldBack(held, ({ childNodes }) => {
      held.replaceWith(...childNodes);
      block.dispatchEvent(new Event("filled", { bubbles: true }));
    });
  };
  const choose = (device) => {
    if (![...inputs, ...values].some(({ dataset }) => dataset.device === device)) return;
    for (const input of inputs) {
      if (input.dataset.device !== device) continue;
      input.checked = true;
      fill(input);
    }
    for (const value of values) value.hidden = value.dataset.device !== device;
  };
  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (!id || document.getElementById(id)) return;
    const held = [...document.querySelectorAll(".tabbed-block > noscript")];
    const block = held.find(({ textContent }) => textContent.includes(`id="${id}"`))?.parentNode;
    if (!block) return;
    const set = block.closest(".tabbed-set");
    choose(set.querySelectorAll(":scope > input")[[...block.parentNode.children].indexOf(block)].dataset.device);
    location.replace(location.hash); // the element that it names is here now
  };

  for (const input of inputs) {
    input.addEventListener("change", () => {
      if (!input.checked) return;
      choose(input.dataset.device);
      stored(KEPT, input.dataset.device);
    });
  }
  choose(stored(KEPT) ?? [...inputs].find(({ checked }) => checked)?.dataset.device);
  addEventListener("hashchange", follow);
  follow();
})();
