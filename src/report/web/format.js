/* Numbers, colours and elements: what all other scripts use. They share one object, `cleave`. */
"use strict";
var cleave = {};

(function () {
  /* ---- numbers as people say them ---- */

  function scaled(value, steps) {
    if (value === null || value === undefined || !isFinite(value)) return "–";
    if (value === 0) return "0";
    let best = steps[0];
    for (const step of steps) if (Math.abs(value) >= step[0] * 0.9995) best = step;
    const number = value / best[0];
    const digits = Math.abs(number) >= 99.95 ? 0 : Math.abs(number) >= 9.995 ? 1 : 2;
    return (number.toFixed(digits) + " " + best[1]).trim();
  }
  cleave.seconds = (s) => s >= 120 && isFinite(s)
    ? Math.floor(Math.round(s) / 60) + " min " + Math.round(s) % 60 + " s"
    : scaled(s, [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]]);
  cleave.bytes = (n) => scaled(n, [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"]]);
  cleave.count = (n) => scaled(n, [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]]);
  cleave.percent = (x) => (100 * x).toFixed(Math.abs(x) < 0.0995 ? 1 : 0) + " %";
  /* Accuracies differ by less than a percent. */
  cleave.accuracy = (x) => (100 * x).toFixed(1) + " %";
  cleave.fine = (x) => String(+(100 * x).toFixed(2)) + " %";
  cleave.plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");

  /* ---- colours: from style.css, as they are now ---- */

  cleave.colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const order = ["blue", "orange", "green", "purple", "red", "cyan", "olive", "grey"];
  cleave.nth = (i) => cleave.colour(order[i % order.length]);
  /* [r, g, b, 255] as one number, for pixels of a canvas. */
  cleave.pixel = (css) => {
    const c = d3.rgb(css);
    return ((255 << 24) | (c.b << 16) | (c.g << 8) | c.r) >>> 0;
  };
  cleave.workerColour = (worker, n) =>
    n <= order.length ? cleave.nth(worker) : d3.hcl(30 + 330 * worker / n, 52, 62).toString();

  /* ---- elements ---- */

  cleave.element = function (tag, attributes, ...children) {
    const e = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {}))
      if (key === "text") e.textContent = value;
      else if (key.startsWith("on")) e.addEventListener(key.slice(2), value);
      else if (value !== false && value !== null) e.setAttribute(key, value === true ? "" : value);
    for (const child of children) if (child) e.append(child);
    return e;
  };

  cleave.table = function (heads, rows) {
    const e = cleave.element;
    return e("div", { class: "scroll", tabindex: "0" },
      e("table", {},
        e("thead", {}, e("tr", {}, ...heads.map((h) => e("th", { text: h, scope: "col" })))),
        e("tbody", {}, ...rows.map((r) =>
          e("tr", {}, ...r.map((c) => e("td", { text: c === null || c === undefined ? "–" : c })))))));
  };

  cleave.legend = (entries) => cleave.element("div", { class: "legend" },
    ...entries.map(([text, colour]) => cleave.element("span", {},
      cleave.element("i", { style: "background:" + colour }), text)));

  /* ---- the one tip ---- */

  const tip = () => document.getElementById("tip");
  cleave.showTip = function (text, x, y) {
    const t = tip();
    t.textContent = text;
    t.hidden = false;
    const box = t.getBoundingClientRect();
    t.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    t.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + "px";
  };
  cleave.hideTip = () => { tip().hidden = true; };
})();
