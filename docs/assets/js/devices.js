// A device's tab chooses the device everywhere: the theme links the tabs in sight; this adds those that are folded away,
// and the values in sentences.
(() => {
  const inputs = document.querySelectorAll(".tabbed-set.devices > input[data-device]");
  const choose = (device) => {
    for (const input of inputs) if (input.dataset.device === device) input.checked = true;
    for (const value of document.querySelectorAll("data[data-device]")) value.hidden = value.dataset.device !== device;
  };
  for (const input of inputs) {
    input.addEventListener("change", () => input.checked && choose(input.dataset.device));
    if (input.checked) choose(input.dataset.device);
  }
})();
