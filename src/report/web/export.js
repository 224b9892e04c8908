/* Charts as files. A picture on a canvas is drawn once more while the canvas' own functions write down
 * what they are asked for; that gives the lines of an SVG file. A PNG is the canvas on the page's
 * colour, and of a picture that is an SVG already, that picture on a canvas. */
"use strict";
(function () {
  const e = cleave.element;
  const round = (x) => +(+x).toFixed(2);
  const escape = (x) => String(x).replace(/[<&>"]/g, (c) => ({ "<": "&lt;", "&": "&amp;", ">": "&gt;", '"': "&quot;" })[c]);

  /* ---- a canvas that writes down ---- */

  function record(canvas, paint) {
    const g = canvas.getContext("2d"), box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    const out = [], stack = [], names = ["beginPath", "moveTo", "lineTo", "bezierCurveTo", "quadraticCurveTo", "arc", "rect", "closePath",
      "fill", "stroke", "fillRect", "strokeRect", "fillText", "clip", "save", "restore", "putImageData"];
    let path = "", clip = "", clips = 0;
    const at = () => { const m = g.getTransform(); return [m.a / ratio, m.b / ratio, m.c / ratio, m.d / ratio, m.e / ratio, m.f / ratio].map(round).join(" "); };
    const put = (tag, attributes, inside) => out.push(`<${tag} transform="matrix(${at()})"${clip} ${attributes}` +
      (g.globalAlpha < 1 ? ` opacity="${g.globalAlpha}"` : "") + (inside === undefined ? "/>" : `>${inside}</${tag}>`));
    const pen = () => `fill="none" stroke="${escape(g.strokeStyle)}" stroke-width="${g.lineWidth}"` +
      (g.getLineDash().length ? ` stroke-dasharray="${g.getLineDash().join(" ")}"` : "");
    const ink = () => `stroke="none" fill="${escape(g.fillStyle)}"`;
    const box4 = (x, y, w, h) => `M${round(x)} ${round(y)}h${round(w)}v${round(h)}h${round(-w)}z`;
    const point = (x, y) => `${round(x)} ${round(y)} `;
    const spy = {
      beginPath() { path = ""; },
      moveTo(x, y) { path += "M" + point(x, y); },
      lineTo(x, y) { path += (path ? "L" : "M") + point(x, y); },
      bezierCurveTo(a, b, c, d, x, y) { path += "C" + point(a, b) + point(c, d) + point(x, y); },
      quadraticCurveTo(a, b, x, y) { path += "Q" + point(a, b) + point(x, y); },
      arc(x, y, r, a, b, left) {
        const turn = Math.max(-2 * Math.PI, Math.min(2 * Math.PI, b - a)), end = a + turn / 2;
        const spot = (t) => point(x + r * Math.cos(t), y + r * Math.sin(t)), way = left ? 0 : 1;
        path += (path ? "L" : "M") + spot(a);
        for (const t of [end, a + turn]) path += `A${round(r)} ${round(r)} 0 0 ${way} ${spot(t)}`;
      },
      rect(x, y, w, h) { path += box4(x, y, w, h); },
      closePath() { path += "Z"; },
      fill() { put("path", `d="${path}" ${ink()}`); },
      stroke() { put("path", `d="${path}" ${pen()}`); },
      fillRect(x, y, w, h) { put("path", `d="${box4(x, y, w, h)}" ${ink()}`); },
      strokeRect(x, y, w, h) { put("path", `d="${box4(x, y, w, h)}" ${pen()}`); },
      fillText(value, x, y) {
        const anchor = { center: "middle", right: "end", end: "end" }[g.textAlign] || "start";
        const down = { top: "0.8em", middle: "0.35em", bottom: "-0.2em" }[g.textBaseline] || "0";
        put("text", `x="${round(x)}" y="${round(y)}" dy="${down}" text-anchor="${anchor}" style="font:${escape(g.font)}" ${ink()}`, escape(value));
      },
      clip() {
        const id = "clip" + ++clips;
        out.push(`<clipPath id="${id}"><path transform="matrix(${at()})" d="${path}"/></clipPath>`);
        /* Another group around it, because the clip stands in the picture's own coordinates. */
        clip = ` data-clip="${id}"`;
      },
      save() { stack.push(clip); },
      restore() { clip = stack.pop() || ""; },
      putImageData(data, x, y) {
        const part = e("canvas", { width: data.width, height: data.height });
        part.getContext("2d").putImageData(data, 0, 0);
        out.push(`<image x="${x / ratio}" y="${y / ratio}" width="${data.width / ratio}" height="${data.height / ratio}" href="${part.toDataURL()}"/>`);
      },
    };
    for (const name of names)
      g[name] = (...values) => { spy[name](...values); return CanvasRenderingContext2D.prototype[name].apply(g, values); };
    try { paint(); } finally { for (const name of names) delete g[name]; }
    const lines = out.map((line) => line.replace(/^(.*?) data-clip="(\w+)"(.*)$/s, '<g clip-path="url(#$2)">$1$3</g>'));
    return wrap(box.width, box.height, lines.join("\n"));
  }

  const wrap = (width, height, inside) => `<svg xmlns="http://www.w3.org/2000/svg" width="${round(width)}" height="${round(height)}" ` +
    `viewBox="0 0 ${round(width)} ${round(height)}">\n<rect width="100%" height="100%" fill="${cleave.colour("panel")}"/>\n${inside}\n</svg>\n`;

  /* ---- a picture that is an SVG ---- */

  const styles = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor"];
  function copyOf(svg) {
    const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
    from.forEach((node, i) => {
      const now = getComputedStyle(node);
      to[i].setAttribute("style", styles.map((k) => k + ":" + now.getPropertyValue(k)).join(";"));
    });
    /* All of it, however far it is zoomed. */
    const view = svg.querySelector(":scope > g"), box = view.getBBox();
    copy.querySelector(":scope > g").setAttribute("transform", `translate(${round(8 - box.x)},${round(8 - box.y)})`);
    return wrap(box.width + 16, box.height + 16, new XMLSerializer().serializeToString(copy).replace(/^<svg[^>]*>/, "").replace(/<\/svg>$/, ""));
  }

  /* The text of a figure's SVG file. */
  cleave.svgOf = function (figure) {
    const svg = figure.querySelector("svg"), canvas = figure.querySelector("canvas");
    return svg ? copyOf(svg) : record(canvas, figure.repaint || (() => figure.chart.draw()));
  };

  /* A promise of a figure's PNG, twice as fine as the screen. */
  cleave.pngOf = function (figure) {
    return new Promise((resolve, reject) => {
      const picture = new Image();
      picture.onerror = () => reject(new Error("the picture cannot be drawn"));
      picture.onload = () => {
        const scale = Math.min(2, 8000 / Math.max(picture.width, picture.height));
        const canvas = e("canvas", { width: Math.round(picture.width * scale), height: Math.round(picture.height * scale) });
        const g = canvas.getContext("2d");
        g.scale(scale, scale);
        g.drawImage(picture, 0, 0);
        canvas.toBlob(resolve, "image/png");
      };
      picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(cleave.svgOf(figure));
    });
  };

  function save(blob, name) {
    const url = URL.createObjectURL(blob), a = e("a", { href: url, download: name });
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  /* Two buttons behind a figure. */
  cleave.addExports = function (figure) {
    const name = "cleave-" + figure.dataset.chart;
    const button = (text, act) => e("button", { type: "button", text, "aria-label": "save " + figure.dataset.chart + " as " + text, onclick: act });
    figure.append(e("div", { class: "tools exports" },
      button("SVG", () => save(new Blob([cleave.svgOf(figure)], { type: "image/svg+xml" }), name + ".svg")),
      button("PNG", () => cleave.pngOf(figure).then((blob) => save(blob, name + ".png")))));
  };
})();
