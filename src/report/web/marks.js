/* Marks over the timeline: arrows for messages, the slices of the layer that was chosen, and the
 * range whose totals stand below it. timeline.js calls paintMarks after each picture. */
"use strict";
(function () {
  const e = cleave.element;
  const mostArrows = 400;

  /* ---- messages ---- */

  /* Of a panel: [{from, to, send, receive}], slices by number. A sending belongs to the first receiving of
   * the same tensor by the same two workers; both may name the tensor by different layers (the receiver by
   * one that passes it through), and then their order decides. Found once. */
  function messagesOf(p) {
    if (p.messages) return p.messages;
    const s = p.slices, waiting = new Map(), list = [], bySlice = new Map();
    const ends = p.t.names.map((name) => {
      const found = /^(send|receive) (.*) (?:to|from) worker (\d+)( of micro-batch \d+)?$/.exec(name);
      return found && { sends: found[1] === "send", what: found[2], part: found[4] || "", peer: +found[3] };
    });
    const each = (sends, act) => {
      for (let w = 0; w < p.workers; w++)
        for (let i = s.first[2 * w + 1]; i < s.first[2 * w + 2]; i++) {
          const end = ends[s.name[i]];
          if (end && end.sends === sends) act((sends ? `${w} ${end.peer}` : `${end.peer} ${w}`) + end.part, w, end.peer, i, end.what);
        }
    };
    if (ends.some(Boolean)) {
      each(true, (key, from, to, i, what) => { if (!waiting.has(key)) waiting.set(key, []); waiting.get(key).push({ i, what }); });
      each(false, (key, to, from, i, what) => {
        const queue = waiting.get(key) || [], same = queue.findIndex((x) => x.what === what);
        if (!queue.length) return;
        const send = queue.splice(Math.max(0, same), 1)[0].i;
        const message = { from, to, send, receive: i };
        list.push(message);
        bySlice.set(send, message).set(i, message);
      });
    }
    p.messages = list;
    p.messageOf = bySlice;
    return list;
  }

  function paintArrow(g, x0, y0, x1, y1) {
    const bend = Math.max(8, Math.abs(x1 - x0) / 2), angle = Math.atan2(y1 - y0, Math.max(6, (x1 - x0) / 2));
    g.beginPath();
    g.moveTo(x0, y0);
    g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    g.stroke();
    g.beginPath();
    g.moveTo(x1, y1);
    g.lineTo(x1 - 6 * Math.cos(angle - 0.5), y1 - 6 * Math.sin(angle - 0.5));
    g.lineTo(x1 - 6 * Math.cos(angle + 0.5), y1 - 6 * Math.sin(angle + 0.5));
    g.closePath();
    g.fill();
  }

  /* Those that are in view, unless they would hide the rest; always that under the pointer. */
  function paintMessages(chart, g, p, top, scale) {
    const { view, panelHeight } = chart, each = panelHeight / (view.w1 - view.w0), s = p.slices;
    const inView = messagesOf(p).filter((m) => s.end[m.receive] * p.quantum >= view.t0 && s.begin[m.send] * p.quantum <= view.t1 &&
      Math.max(m.from, m.to) >= view.w0 && Math.min(m.from, m.to) < view.w1);
    chart.nMessages = (chart.nMessages || 0) + inView.length;
    const pointed = chart.pointed && chart.pointed.p === p ? p.messageOf.get(chart.pointed.index) : null;
    const shown = inView.length <= mostArrows && chart.showMessages ? inView : [];
    const y = (w) => top + (w - view.w0 + 0.84) * each;
    const draw = (m) => paintArrow(g, scale(s.begin[m.send] * p.quantum), y(m.from), scale(s.end[m.receive] * p.quantum), y(m.to));
    g.strokeStyle = g.fillStyle = cleave.colour("ink");
    g.lineWidth = 1;
    g.globalAlpha = 0.8;
    shown.forEach(draw);
    chart.nArrows += shown.length;
    g.globalAlpha = 1;
    if (pointed) {
      g.lineWidth = 2.5;
      g.strokeStyle = g.fillStyle = cleave.colour("bad");
      draw(pointed);
    }
  }

  /* ---- the chosen layer ---- */

  /* Everything else is veiled. */
  function paintChosen(chart, g, p, top, scale, width) {
    const { view, panelHeight, left } = chart, each = panelHeight / (view.w1 - view.w0), s = p.slices, thick = each >= chart.twoLanesPx;
    const names = new Set(cleave.chosen.layers);
    const ours = p.t.names.map((name) => names.has(cleave.layerOf(name)));
    if (!ours.some(Boolean)) return;
    g.save();
    g.beginPath();
    g.rect(left, top, width - left, panelHeight);
    for (let w = view.w0; w < Math.min(view.w1, p.workers); w++)
      for (let part = 0; part < (thick ? 2 : 1); part++)
        for (let i = cleave.firstSliceAfter(s, 2 * w + part, view.t0 / p.quantum); i < s.first[2 * w + part + 1]; i++) {
          const a = Math.max(left, scale(s.begin[i] * p.quantum)), b = Math.min(width, scale(s.end[i] * p.quantum));
          if (a >= width) break;
          if (!ours[s.name[i]]) continue;
          const y = top + (w - view.w0) * each, length = Math.max(1.5, b - a);
          /* A hole in the veil. */
          g.rect(a, y + (part && thick ? each * 0.68 : 0), length, thick ? each * (part ? 0.32 : 0.68) : each);
        }
    g.globalAlpha = 0.72;
    g.fillStyle = cleave.colour("panel");
    g.fill("evenodd");
    g.restore();
  }

  /* ---- the range ---- */

  /* Seconds by group and by layer, of the workers in view together, between the range's ends. */
  function totals(p, range, view) {
    const s = p.slices, t0 = range[0] / p.quantum, t1 = range[1] / p.quantum;
    const groups = new Float64Array(cleave.groups.length), names = new Float64Array(p.t.names.length);
    const last = Math.min(view.w1, p.workers);
    for (let lane = 2 * view.w0; lane < 2 * last; lane++) {
      let reached = t0; /* several messages may be under way at once: for the group, time counts once */
      for (let i = cleave.firstSliceAfter(s, lane, t0); i < s.first[lane + 1] && s.begin[i] < t1; i++) {
        const end = Math.min(t1, s.end[i]), length = end - Math.max(t0, s.begin[i]);
        if (length <= 0) continue;
        names[s.name[i]] += length * p.quantum;
        groups[p.group[i]] += Math.max(0, end - Math.max(reached, s.begin[i])) * p.quantum;
        reached = Math.max(reached, end);
      }
    }
    return { groups, names, n: Math.max(0, last - view.w0) };
  }
  cleave.rangeTotals = totals;

  function tellRange(chart) {
    const range = chart.range, rows = [], of = (x, n) => n ? cleave.seconds(x / n) : null;
    const sums = chart.panels.map((p) => ({ p, ...totals(p, range, chart.view) }));
    const span = range[1] - range[0], n = Math.max(...sums.map((x) => x.n));
    cleave.groups.forEach((k, i) => {
      if (sums.some((x) => x.groups[i] > 0))
        rows.push([k === "other" ? "copies, sums, other" : k, ...sums.flatMap((x) => [of(x.groups[i], x.n), x.n ? cleave.percent(x.groups[i] / x.n / span) : null])]);
    });
    const layers = new Map();
    sums.forEach((x, k) => x.names.forEach((seconds, i) => {
      const name = x.p.t.names[i];
      if (!seconds || name.startsWith("wait")) return;
      if (!layers.has(name)) layers.set(name, sums.map(() => 0));
      layers.get(name)[k] += seconds;
    }));
    const most = [...layers].sort((a, b) => d3.max(b[1]) - d3.max(a[1])).slice(0, 8);
    const workers = n < chart.workers ? `workers ${chart.view.w0} to ${chart.view.w0 + n - 1}` : cleave.plural(n, "worker");
    const heads = chart.panels.flatMap((p) => [p.t.kind, "share"]);
    chart.rangeBox.replaceChildren(
      e("p", {}, e("b", { text: `${cleave.seconds(range[0])} to ${cleave.seconds(range[1])}: ${cleave.seconds(span)}` }), `, mean of ${workers} `,
        e("button", { type: "button", text: "Clear", onclick: () => setRange(chart, null) })),
      e("div", { class: "pair" }, cleave.table(["", ...heads], rows),
        cleave.table(["longest", ...heads], most.map(([name, all]) => [name, ...all.flatMap((x, k) => [of(x, sums[k].n), cleave.percent(x / Math.max(1, sums[k].n) / span)])]))));
    chart.rangeBox.hidden = false;
  }

  function setRange(chart, range) {
    chart.range = range;
    if (range) tellRange(chart); else chart.rangeBox.hidden = true;
    chart.redraw();
  }
  cleave.setTimelineRange = setRange;

  /* Shift and drag; or the whole view, by a button. */
  cleave.addMarks = function (chart, parent) {
    const { canvas } = chart;
    chart.rangeBox = e("div", { class: "side", id: "range", role: "status", hidden: true });
    parent.append(chart.rangeBox);
    const timeAt = (event) => Math.max(0, Math.min(chart.span, chart.scale().invert(Math.max(chart.left, event.clientX - canvas.getBoundingClientRect().left))));
    let start = null;
    canvas.addEventListener("mousedown", (event) => {
      if (!event.shiftKey || event.button) return;
      start = timeAt(event);
      event.preventDefault();
      const move = (now) => { const t = timeAt(now); chart.range = t > start ? [start, t] : [t, start]; chart.redraw(); };
      const up = (now) => {
        removeEventListener("mousemove", move);
        removeEventListener("mouseup", up);
        move(now);
        setRange(chart, chart.range[1] > chart.range[0] ? chart.range : null);
      };
      addEventListener("mousemove", move);
      addEventListener("mouseup", up);
    });
    chart.tools.append(e("button", { type: "button", text: "Totals of the view", onclick: () => setRange(chart, [chart.view.t0, chart.view.t1]) }));
    chart.showMessages = true;
    if (chart.panels.some((p) => messagesOf(p).length))
      chart.tools.append(e("button", { type: "button", text: "Messages", "aria-pressed": "true", onclick: (event) => {
        chart.showMessages = !chart.showMessages;
        event.target.setAttribute("aria-pressed", chart.showMessages);
        chart.redraw();
      } }));
  };

  cleave.paintMarks = function (chart, g, width) {
    const scale = chart.scale();
    chart.nMessages = chart.nArrows = 0;
    g.save();
    g.beginPath();
    g.rect(chart.left, 0, width - chart.left, chart.total);
    g.clip();
    chart.panels.forEach((p, i) => {
      g.save();
      if (cleave.chosen) paintChosen(chart, g, p, chart.tops[i], scale, width);
      g.beginPath();
      g.rect(chart.left, chart.tops[i], width - chart.left, chart.panelHeight);
      g.clip();
      paintMessages(chart, g, p, chart.tops[i], scale);
      g.restore();
    });
    if (chart.range) {
      const a = scale(chart.range[0]), b = scale(chart.range[1]), bottom = chart.total - 26;
      g.fillStyle = cleave.colour("accent");
      g.globalAlpha = 0.16;
      g.fillRect(a, 0, Math.max(1, b - a), bottom);
      g.globalAlpha = 1;
      g.fillRect(a - 0.5, 0, 1, bottom);
      g.fillRect(b - 0.5, 0, 1, bottom);
    }
    g.restore();
    chart.hint.textContent = chart.nMessages > mostArrows && chart.showMessages
      ? `${chart.nMessages} messages are in view: zoom in until they are ${mostArrows} or fewer, and each is an arrow.` : "";
  };
})();
