/* The timeline of all workers: predicted above measured, under one axis, with the utilisation on top.
 *
 * Everything is painted pixel by pixel into a canvas: a row of pixels is filled from the slices of its
 * worker that are in view, found by bisection, so that the cost depends on the size of the screen
 * and not on the number of slices. d3 has the scale of the axis and the gestures.
 */
"use strict";
(function () {
  const e = cleave.element;
  const left = 44, utilisationHeight = 56, axisHeight = 26, titleHeight = 20, gap = 8, separatedPx = 14, twoLanesPx = 14;

  /* ---- slices in view ---- */

  /* First slice of the lane that ends after t. Later ones may have ended before it: many messages come
   * and go while a long one is under way. */
  function firstAfter(s, lane, t) {
    let a = s.first[lane], b = s.first[lane + 1];
    while (a < b) {
      const middle = (a + b) >> 1;
      if (s.reach[middle] <= t) a = middle + 1; else b = middle;
    }
    return a;
  }

  cleave.firstSliceAfter = firstAfter;

  function sliceAt(s, lane, t, slack) {
    let best = -1;
    for (let i = firstAfter(s, lane, t - slack); i < s.first[lane + 1] && s.begin[i] <= t + slack; i++)
      if (s.end[i] >= t - slack && (best < 0 || s.begin[i] <= t)) best = i;
    return best;
  }

  /* ---- a panel: one timeline ---- */

  function prepare(t) {
    const slices = cleave.unpackTimeline(t);
    const byName = t.names.map((name) => cleave.groupOf(name, 0));
    const group = new Uint8Array(slices.n);
    for (let i = 0; i < slices.n; i++)
      group[i] = slices.category[i] === 0 ? byName[slices.name[i]] : cleave.groupOf("", slices.category[i]);
    let busy = 0;
    for (let w = 0; w < t.workers; w++)
      for (let i = slices.first[2 * w]; i < slices.first[2 * w + 1]; i++)
        if (group[i] < 4) busy += slices.end[i] - slices.begin[i];
    return { t, slices, group, quantum: t.quantum_s, workers: t.workers,
      idle: 1 - busy * t.quantum_s / (t.workers * t.span_s) };
  }

  /* Share of the workers that compute, by column of pixels. */
  function utilisation(p, view, columns) {
    const sums = new Float32Array(columns), s = p.slices;
    const t0 = view.t0 / p.quantum, scale = columns / ((view.t1 - view.t0) / p.quantum);
    for (let w = view.w0; w < Math.min(view.w1, p.workers); w++) {
      const lane = 2 * w, stop = s.first[lane + 1];
      for (let i = firstAfter(s, lane, t0); i < stop; i++) {
        const a = (s.begin[i] - t0) * scale, b = (s.end[i] - t0) * scale;
        if (a >= columns) break;
        if (p.group[i] > 3 || b <= 0) continue;
        const from = Math.max(0, a), to = Math.min(columns, b);
        const c0 = Math.floor(from), c1 = Math.min(columns - 1, Math.floor(to));
        if (c0 === c1) sums[c0] += to - from;
        else {
          sums[c0] += c0 + 1 - from;
          for (let c = c0 + 1; c < c1; c++) sums[c] += 1;
          sums[c1] += to - c1;
        }
      }
    }
    const n = Math.max(1, Math.min(view.w1, p.workers) - view.w0);
    return sums.map((x) => Math.min(1, x / n));
  }

  /* The pixels of one lane. A slice of a few pixels is painted as it is. Narrower ones would be a pattern of
   * stripes, so they are put together: the lane is divided into cells, and what fills most of a cell
   * colours the part of it that no wide slice covers. A gap of a pixel between wide slices is closed. */
  const cellPx = 4, closedPx = 2, nGroups = cleave.groups.length;
  let sums = new Float32Array(0); /* by cell: time of narrow slices, by group, and of wide ones */
  function addToCells(from, to, slot) {
    for (let c = Math.floor(from / cellPx); c * cellPx < to; c++)
      sums[c * (nGroups + 1) + slot] += Math.min(to, (c + 1) * cellPx) - Math.max(from, c * cellPx);
  }

  function paintLane(p, lane, view, colours, row) {
    const s = p.slices, columns = row.length, size = Math.ceil(columns / cellPx) * (nGroups + 1), wide = [];
    const t0 = view.t0 / p.quantum, scale = columns / ((view.t1 - view.t0) / p.quantum);
    if (sums.length < size) sums = new Float32Array(size);
    sums.fill(0, 0, size);
    let narrow = false;
    for (let i = firstAfter(s, lane, t0); i < s.first[lane + 1]; i++) {
      const a = (s.begin[i] - t0) * scale, b = (s.end[i] - t0) * scale;
      if (a >= columns) break;
      if (b <= 0) continue;
      const isWide = b - a >= cellPx;
      if (isWide) wide.push(i); else narrow = true;
      addToCells(Math.max(0, a), Math.min(columns, b), isWide ? nGroups : p.group[i]);
    }
    if (narrow) paintCells(size / (nGroups + 1), colours, row);
    let reached = -Infinity;
    for (const i of wide) {
      const a = (s.begin[i] - t0) * scale, b = (s.end[i] - t0) * scale;
      let c0 = Math.max(0, Math.round(a));
      const c1 = Math.min(columns, Math.max(c0 + 1, Math.round(b)));
      if (c0 > reached && c0 - reached <= closedPx) c0 = reached;
      row.fill(colours[p.group[i]], c0, c1);
      if (b - a >= separatedPx && a >= 0 && p.group[i] !== 5) row[c0] = colours.edges[p.group[i]];
      reached = c1;
    }
  }

  function paintCells(n, colours, row) {
    for (let c = 0; c < n; c++) {
      let best = -1, most = 0, all = 0;
      for (let k = 0; k < nGroups; k++) {
        const x = sums[c * (nGroups + 1) + k];
        all += x;
        if (x > most) { most = x; best = k; }
      }
      if (best < 0) continue;
      /* Where there is more of nothing than of anything, a lone slice is still a line. */
      const end = Math.min(row.length, (c + 1) * cellPx), nothing = cellPx - all - sums[c * (nGroups + 1) + nGroups];
      row.fill(colours[best], most >= nothing ? c * cellPx : Math.max(c * cellPx, end - Math.max(1, Math.round(all))), end);
    }
  }

  function paintPanel(image, p, view, top, heightPx, ratio, colours) {
    const columns = image.width, rows = Math.round(heightPx * ratio), shown = view.w1 - view.w0;
    const pixels = new Uint32Array(image.data.buffer), each = rows / shown;
    const compute = new Uint32Array(columns), communicate = new Uint32Array(columns);
    let painted = -1;
    for (let y = 0; y < rows; y++) {
      const w = view.w0 + Math.min(shown - 1, Math.floor(y / each));
      if (w >= p.workers) break;
      if (w !== painted) {
        compute.fill(colours[7]);
        communicate.fill(colours[7]);
        paintLane(p, 2 * w, view, colours, compute);
        paintLane(p, 2 * w + 1, view, colours, communicate);
        if (each < twoLanesPx * ratio) mergeLanes(compute, communicate, colours);
        painted = w;
      }
      const inside = y - (w - view.w0) * each;
      if (each >= twoLanesPx * ratio && inside >= each - ratio) continue;
      pixels.set(each >= twoLanesPx * ratio && inside >= each * 0.68 ? communicate : compute, (top * ratio + y | 0) * columns);
    }
  }

  /* Rows too thin for two parts: communication shows where its worker stands still, in a paler tone. */
  function mergeLanes(compute, communicate, colours) {
    for (let c = 0; c < compute.length; c++)
      if (compute[c] === colours[5] && communicate[c] === colours[4]) compute[c] = colours[8];
  }

  /* ---- the chart ---- */

  function createChart(parent, s) {
    const panels = ["predicted", "measured"].map((k) => cleave.timeline(s, k)).filter(Boolean).map(prepare);
    const span = d3.max(panels, (p) => p.t.span_s), workers = d3.max(panels, (p) => p.workers);
    const panelHeight = Math.max(64, Math.min(300, workers * 26));
    const view = { t0: 0, t1: span, w0: 0, w1: workers };
    const total = utilisationHeight + panels.length * (titleHeight + panelHeight) + axisHeight + gap;
    const canvas = e("canvas", { tabindex: "0", role: "img", "aria-label": "Timeline of " +
      cleave.plural(workers, "worker") + ", " + panels.map((p) => p.t.kind + " " + cleave.seconds(p.t.span_s)).join(", ") });
    const tools = e("div", { class: "tools" }), plot = e("div", { class: "plot" }, canvas);
    const hint = e("figcaption"), figure = e("figure", { "data-chart": "timeline" }, tools, plot, hint);
    parent.append(figure);
    canvas.style.height = total + "px";
    const chart = { panels, view, canvas, span, workers, panelHeight, total, tools, left, twoLanesPx, hint, figure,
      tops: panels.map((_, i) => utilisationHeight + titleHeight + i * (titleHeight + panelHeight)) };
    chart.scale = () => d3.scaleLinear().domain([view.t0, view.t1]).range([left, canvas.clientWidth]);
    return chart;
  }

  function paint(chart) {
    const { canvas, view, panels, panelHeight } = chart, ratio = Math.min(2, devicePixelRatio || 1);
    const width = Math.max(120, canvas.clientWidth);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(chart.total * ratio);
    const g = canvas.getContext("2d");
    const byGroup = cleave.groupColours();
    const colours = cleave.groups.map((k) => cleave.pixel(byGroup[k]));
    colours[7] = cleave.pixel(cleave.colour("idle")); /* idle: nothing at all */
    /* The first column of a wide slice is darker: where it begins. */
    colours.edges = cleave.groups.map((k) => cleave.pixel(d3.color(byGroup[k]).darker(0.5)));
    colours[8] = cleave.pixel(d3.interpolateRgb(byGroup.wait, byGroup.communicate)(0.4));
    const inner = Math.round((width - left) * ratio);
    const image = g.createImageData(inner, canvas.height);
    panels.forEach((p, i) => paintPanel(image, p, view, chart.tops[i], panelHeight, ratio, colours));
    g.putImageData(image, Math.round(left * ratio), 0);
    g.scale(ratio, ratio);
    g.font = "12px system-ui, sans-serif";
    paintUtilisation(chart, g, width);
    paintFrame(chart, g, width);
    cleave.paintMarks(chart, g, width);
  }

  function paintUtilisation(chart, g, width) {
    const top = 14, bottom = utilisationHeight - 6, wide = 3, columns = Math.ceil((width - left) / wide);
    g.fillStyle = cleave.colour("quiet");
    g.fillText("workers that compute", left, 10);
    g.textAlign = "right";
    g.fillText("100 %", left - 4, top + 6);
    g.fillText("0", left - 4, bottom);
    g.textAlign = "left";
    g.strokeStyle = cleave.colour("grid");
    g.strokeRect(left, top, width - left - 1, bottom - top);
    for (const p of chart.panels) {
      const share = utilisation(p, chart.view, columns), measured = p.t.kind === "measured";
      const colour = cleave.colour(measured ? "red" : "blue");
      g.beginPath();
      for (let c = 0; c < columns; c++) {
        const y = bottom - share[c] * (bottom - top);
        if (c) g.lineTo(Math.min(left + (c + 0.5) * wide, width - 1), y); else g.moveTo(left, y);
      }
      g.strokeStyle = colour;
      g.lineWidth = 1.5;
      g.stroke();
      if (measured || chart.panels.length === 1) {
        g.lineTo(width - 1, bottom);
        g.lineTo(left, bottom);
        g.globalAlpha = 0.15;
        g.fillStyle = colour;
        g.fill();
        g.globalAlpha = 1;
      }
    }
  }

  function paintLabels(chart, g, p, top) {
    const { view, panelHeight } = chart, each = panelHeight / (view.w1 - view.w0), scale = chart.scale();
    const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].find((n) => n * each >= 15) || 1024;
    g.textAlign = "right";
    g.fillStyle = cleave.colour("quiet");
    for (let w = Math.ceil(view.w0 / every) * every; w < view.w1; w += every)
      g.fillText(String(w), left - 5, top + (w - view.w0) * each + Math.min(each * 0.5 + 5, each > 13 ? each : 12));
    g.textAlign = "left";
    if (each < 18) return;
    g.fillStyle = cleave.colour("on-colour");
    for (let w = view.w0; w < Math.min(view.w1, p.workers); w++) {
      const s = p.slices, lane = 2 * w;
      for (let i = firstAfter(s, lane, view.t0 / p.quantum); i < s.first[lane + 1]; i++) {
        const a = Math.max(left, scale(s.begin[i] * p.quantum)), b = Math.min(scale.range()[1], scale(s.end[i] * p.quantum));
        if (a > scale.range()[1]) break;
        if (b - a < 34 || p.group[i] > 3) continue;
        const text = cleave.instruction(p.t.names[s.name[i]]).layer;
        if (g.measureText(text).width < b - a - 6) g.fillText(text, a + 4, top + (w - view.w0) * each + each * 0.34 + 4);
      }
    }
  }

  /* The page names one predicted and one measured time of a step. The step drawn here is one of many, so
   * where it took another time that is said of it, and not of the step. */
  function panelTitle(chart, p) {
    const f = cleave.figures(cleave.shown()), said = p.t.kind === "measured" ? f.measured_s : f.predicted_s;
    if (!said || Math.abs(p.t.span_s / said - 1) < 0.0005) return p.t.kind + ": step " + cleave.seconds(p.t.span_s);
    if (p.t.plan.startsWith("pipedream")) return p.t.kind + ": a window of several steps";
    if (p.t.kind !== "measured") return "predicted: instructions of one step";
    const usual = Math.abs(p.t.span_s / said - 1) < 0.2;
    return usual ? "measured: one step, of about median length" : `measured: one of the last steps, ${cleave.seconds(p.t.span_s)} (median of all: ${cleave.seconds(said)})`;
  }

  function paintFrame(chart, g, width) {
    const { panels, tops, panelHeight } = chart, scale = chart.scale();
    panels.forEach((p, i) => {
      const idle = p.idle;
      g.fillStyle = cleave.colour(p.t.kind === "measured" ? "red" : "blue");
      g.font = "bold 12px system-ui, sans-serif";
      g.fillText(panelTitle(chart, p) + (width < 420 ? ", idle " : ", not computing ") +
        cleave.percent(idle), left, tops[i] - 6);
      g.font = "12px system-ui, sans-serif";
      paintLabels(chart, g, p, tops[i]);
      const end = scale(p.t.span_s);
      if (end < width - 1) { /* nothing is known behind the end of this one */
        g.fillStyle = cleave.colour("panel");
        g.fillRect(Math.max(left, end), tops[i], width - end, panelHeight);
      }
      g.strokeStyle = cleave.colour("line");
      g.strokeRect(left, tops[i], width - left - 1, panelHeight);
    });
    const y = chart.total - axisHeight;
    g.fillStyle = g.strokeStyle = cleave.colour("ink");
    g.textAlign = "center";
    for (const t of scale.ticks(Math.max(2, Math.floor(width / 110)))) {
      const x = scale(t);
      g.beginPath();
      g.moveTo(x, y);
      g.lineTo(x, y + 5);
      g.stroke();
      if (x > left + 10 && x < width - 26) g.fillText(cleave.seconds(t), x, y + 18);
    }
    g.textAlign = "left";
  }

  /* ---- the slice under the pointer ---- */

  function find(chart, x, y) {
    const i = chart.tops.findIndex((top) => y >= top && y < top + chart.panelHeight);
    if (i < 0 || x < left) return null;
    const p = chart.panels[i], each = chart.panelHeight / (chart.view.w1 - chart.view.w0);
    const row = (y - chart.tops[i]) / each, w = chart.view.w0 + Math.floor(row);
    if (w >= p.workers) return null;
    const scale = chart.scale(), t = scale.invert(x) / p.quantum, slack = (scale.invert(x + 1) - scale.invert(x)) / p.quantum;
    const lane = 2 * w + (each >= twoLanesPx && row % 1 > 0.68 ? 1 : 0);
    return { p, w, index: sliceAt(p.slices, lane, t, slack), lane, t: t * p.quantum };
  }

  /* The same instruction in the other panel: the one of the same name and turn. */
  function twin(chart, hit) {
    const other = chart.panels.find((p) => p !== hit.p);
    if (!other || hit.w >= other.workers) return null;
    const s = hit.p.slices, name = hit.p.t.names[s.name[hit.index]], number = other.t.names.indexOf(name);
    if (number < 0) return null;
    let turn = 0;
    for (let i = s.first[hit.lane]; i < hit.index; i++) turn += s.name[i] === s.name[hit.index];
    const o = other.slices;
    for (let i = o.first[hit.lane]; i < o.first[hit.lane + 1]; i++)
      if (o.name[i] === number && turn-- === 0) return other.t.kind + ": " + cleave.seconds((o.end[i] - o.begin[i]) * other.quantum);
    return null;
  }

  function tell(chart, hit) {
    const { p, index } = hit;
    if (index < 0) return "worker " + hit.w + ", " + p.t.kind + "\nidle at " + cleave.seconds(hit.t);
    const s = p.slices, length = (s.end[index] - s.begin[index]) * p.quantum;
    return [p.t.names[s.name[index]], "worker " + hit.w + ", " + cleave.categories[s.category[index]],
      p.t.kind + ": " + cleave.seconds(length) + " from " + cleave.seconds(s.begin[index] * p.quantum),
      s.category[index] === 2 ? null : twin(chart, hit)].filter(Boolean).join("\n");
  }

  /* ---- moving ---- */

  function clamp(chart) {
    const v = chart.view, least = chart.span * 1e-6;
    const length = Math.max(least, Math.min(chart.span, v.t1 - v.t0));
    v.t0 = Math.max(0, Math.min(chart.span - length, v.t0));
    v.t1 = v.t0 + length;
    const rows = Math.round(Math.max(Math.min(4, chart.workers), Math.min(chart.workers, v.w1 - v.w0)));
    v.w0 = Math.round(Math.max(0, Math.min(chart.workers - rows, v.w0)));
    v.w1 = v.w0 + rows;
  }

  function addMoves(chart, redraw) {
    const { canvas, view } = chart;
    const change = (f) => { f(); clamp(chart); redraw(); };
    const zoomAt = (t, k) => change(() => { const a = view.t0, b = view.t1; view.t0 = t - (t - a) * k; view.t1 = t + (b - t) * k; });
    const middle = () => (view.t0 + view.t1) / 2, shift = (k) => change(() => { const d = (view.t1 - view.t0) * k; view.t0 += d; view.t1 += d; });
    const rows = (k) => change(() => { const c = (view.w0 + view.w1) / 2, h = Math.max(2, (view.w1 - view.w0) * k / 2); view.w0 = Math.floor(c - h); view.w1 = Math.ceil(c + h); });
    const shiftRows = (d) => change(() => { view.w0 += d; view.w1 += d; });
    const all = () => change(() => { view.t0 = 0; view.t1 = chart.span; view.w0 = 0; view.w1 = chart.workers; });

    /* d3-zoom turns wheels, drags and pinches into one transform; the view follows its changes. */
    let last = d3.zoomIdentity;
    const zoom = d3.zoom().scaleExtent([1e-9, 1e9])
      .filter(() => !d3.event.button && !(d3.event.shiftKey && d3.event.type === "mousedown") && (d3.event.type !== "wheel" || d3.event.ctrlKey || document.activeElement === canvas))
      .on("start", () => cleave.hideTip())
      .on("zoom", () => {
        const now = d3.event.transform, k = last.k / now.k;
        if (Math.abs(k - 1) > 1e-9) {
          const source = d3.event.sourceEvent, scale = chart.scale();
          const x = source && source.clientX !== undefined ? source.clientX - canvas.getBoundingClientRect().left : (left + canvas.clientWidth) / 2;
          zoomAt(scale.invert(Math.max(left, x)), k);
        } else {
          const each = chart.panelHeight / (view.w1 - view.w0);
          chart.dragged = (chart.dragged || 0) - (now.y - last.y) / each;
          const whole = Math.trunc(chart.dragged);
          chart.dragged -= whole;
          change(() => {
            const d = (now.x - last.x) / (canvas.clientWidth - left) * (view.t1 - view.t0);
            view.t0 -= d; view.t1 -= d; view.w0 += whole; view.w1 += whole;
          });
        }
        last = now;
      });
    d3.select(canvas).call(zoom).on("dblclick.zoom", null);
    canvas.addEventListener("keydown", (event) => {
      const keys = { "+": () => zoomAt(middle(), 0.6), "=": () => zoomAt(middle(), 0.6), "-": () => zoomAt(middle(), 1 / 0.6),
        ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), ArrowUp: () => shiftRows(-Math.ceil((view.w1 - view.w0) / 8)),
        ArrowDown: () => shiftRows(Math.ceil((view.w1 - view.w0) / 8)), PageUp: () => rows(2), PageDown: () => rows(0.5), "0": all, Home: all };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect(), hit = find(chart, event.clientX - box.left, event.clientY - box.top);
      if (hit && !event.buttons) cleave.showTip(tell(chart, hit), event.clientX, event.clientY); else cleave.hideTip();
      const pointsAt = (x) => x && x.p.messageOf && x.p.messageOf.get(x.index), before = pointsAt(chart.pointed);
      chart.pointed = hit;
      if (pointsAt(hit) !== before) redraw();
    });
    canvas.addEventListener("mouseleave", cleave.hideTip);
    /* A click, not the end of a drag: the layer is chosen, or nothing is. */
    let pressed = null;
    canvas.addEventListener("mousedown", (event) => { pressed = event.shiftKey ? null : [event.clientX, event.clientY]; });
    canvas.addEventListener("click", (event) => {
      canvas.focus();
      if (!pressed || Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) > 3) return;
      const box = canvas.getBoundingClientRect(), hit = find(chart, event.clientX - box.left, event.clientY - box.top);
      cleave.choose(hit && hit.index >= 0 ? cleave.layerOf(hit.p.t.names[hit.p.slices.name[hit.index]]) : null);
    });
    const buttons = [["+", () => zoomAt(middle(), 0.5), "zoom in"], ["−", () => zoomAt(middle(), 2), "zoom out"], ["◀", () => shift(-0.3), "earlier"],
      ["▶", () => shift(0.3), "later"], ["All", all, "show all"]];
    if (chart.workers > 8) buttons.push(["Fewer workers", () => rows(0.5)], ["More workers", () => rows(2)], ["▲", () => shiftRows(-Math.ceil((view.w1 - view.w0) / 2)), "workers before"],
      ["▼", () => shiftRows(Math.ceil((view.w1 - view.w0) / 2)), "workers behind"]);
    for (const [text, act, label] of buttons)
      chart.tools.append(e("button", { type: "button", text, "aria-label": label || text, onclick: act }));
  }

  cleave.addSection({
    id: "timeline", title: "Timeline",
    has: (s) => s.timelines.length > 0,
    say: "One step of all workers: computing in the upper part of each row, communication in the lower (rows that are too " +
      "thin for two parts show computing). Where a row has the colour of idling, its worker stands still. Slices of less " +
      "than a few pixels have the colour of what fills most of the place; the curve on top has the shares.",
    draw(parent, s) {
      const byGroup = cleave.groupColours();
      const chart = createChart(parent, s);
      parent.append(cleave.legend(["forward", "backward", "update", "other", "load", "communicate"].map((k) =>
        [k === "other" ? "copies, sums, other" : k, byGroup[k]]).concat([["idle or waiting", cleave.colour("idle")]],
        chart.panelHeight / chart.workers < twoLanesPx ? [["waiting while it communicates", d3.interpolateRgb(byGroup.wait, byGroup.communicate)(0.4)]] : [])));
      parent.append(e("p", { class: "hint", text: "Drag to move; click it, then wheel or + and − to zoom, arrows to move, 0 for all; a click on an instruction " +
        "chooses its layer; Shift and drag for the totals of a range" +
        (chart.workers > 8 ? ", Page Down and Page Up for fewer and more workers" : "") + "." }));
      let waiting = false;
      const redraw = () => {
        if (waiting) return;
        waiting = true;
        requestAnimationFrame(() => { waiting = false; paint(chart); });
      };
      chart.redraw = redraw;
      addMoves(chart, redraw);
      cleave.addMarks(chart, parent);
      chart.figure.repaint = () => paint(chart);
      cleave.whenChosen(redraw);
      paint(chart);
      cleave.addExports(chart.figure);
      new ResizeObserver(redraw).observe(chart.canvas.parentElement);
      cleave.timelineChart = chart; /* for looking at it from outside: tests */
    },
  });
})();
