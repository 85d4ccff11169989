// The floor of a decoder from its sizes: bytes over the rate of reading. Nothing leaves the page.
document.querySelectorAll(".floor-calculator").forEach((calculator) => {
  const fields = calculator.querySelector(".fields"), output = calculator.querySelector("output");
  const value = (name) => Number(fields.querySelector(`[name=${name}]`).value);
  const three = (number) => Number(number.toPrecision(3)).toLocaleString("en");
  const compute = () => {
    const weights = value("weights") * 1e9 * value("type");
    const cache = value("batch") * value("context") * value("cache") * 1e3;
    const ms = (weights + cache) / ((value("rate") || value("gpu")) * 1e9);
    const ok = weights > 0 && value("batch") > 0 && value("context") >= 0 && value("cache") >= 0 && isFinite(ms);
    const share = Math.round((100 * cache) / (weights + cache));
    output.textContent = ok
      ? `Floor: ${three(ms)} ms a step, ${three((1000 * value("batch")) / ms)} tokens/s in all. The cache is ${share} % of the bytes.`
      : "Fill in weights, texts and a rate above zero.";
  };
  fields.hidden = false;
  fields.addEventListener("input", compute);
  compute();
});
