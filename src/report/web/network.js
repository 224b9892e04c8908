/* The network as a graph (dagre lays it out), each layer with its cut in colour and as a small
 * picture: a block of channels, height and width, one for each part of the samples, sliced where the
 * plan cuts it, each piece in the colour of its worker. */
"use strict";
(function () {
  const e = cleave.element;
  const foldable = /^(relu6?|logistic|tanh|batch_norm|dropout|flatten|local_response_norm)$/;
  const width = 176, height = 66, mostParts = 8, margin = 30;

  /* ---- what is drawn as one ---- */

  const sameCuts = (a, b) => JSON.stringify(a.map((c) => [c.dimension, c.parts])) ===
    JSON.stringify(b.map((c) => [c.dimension, c.parts]));

  /* Layers that only pass through are shown with the one before them, where they are cut alike. */
  function foldNodes(s) {
    const layers = (s.plan && s.plan.layers) || {}, nodes = s.network.nodes, readers = nodes.map(() => 0);
    for (const n of nodes) for (const i of n.inputs) readers[i]++;
    const shown = [], owner = [];
    nodes.forEach((n, i) => {
      const layer = layers[n.name], cuts = cleave.cutsOf(layer, n);
      const stage = layer ? layer.stage : 0;
      const into = n.inputs.length === 1 ? shown[owner[n.inputs[0]]] : null;
      if (into && foldable.test(n.op) && into.last === n.inputs[0] && readers[n.inputs[0]] === 1 && into.number > 0 &&
          into.stage === stage && (sameCuts(into.cuts, cuts) || !layer || n.op === "flatten")) {
        into.folded.push(n);
        into.last = i;
        owner[i] = into.place;
        return;
      }
      owner[i] = shown.length;
      shown.push({ node: n, number: i, last: i, place: shown.length, cuts, stage, layer, folded: [],
        workers: (layer && layer.workers) || stageWorkers(s, stage),
        sources: [...new Set(n.inputs.map((k) => owner[k]))] });
    });
    return shown;
  }

  function stageWorkers(s, stage) {
    const stages = s.plan && s.plan.stages;
    return stages && stages[stage] ? stages[stage].workers : [0];
  }

  /* ---- the small picture ---- */

  function parts(cuts, dimension) {
    const cut = cuts.find((c) => c.dimension === dimension);
    return cut ? cut.parts : 1;
  }

  /* Number of the piece at the given part of each dimension; the last cut changes fastest. */
  function pieceAt(cuts, at) {
    return cuts.reduce((sum, c) => sum * c.parts + Math.min(at[c.dimension] || 0, c.parts - 1), 0);
  }

  cleave.drawPartition = function (g, shown, nWorkers, size) {
    const n = Math.min(parts(shown.cuts, "sample"), 3), all = parts(shown.cuts, "sample");
    const drawn = (d) => Math.min(parts(shown.cuts, d), mostParts);
    const rows = drawn("height"), columns = drawn("width"), slices = drawn("channel");
    const flat = shown.node.shape.length < 4;
    const colour = (at) => cleave.workerColour(shown.workers[pieceAt(shown.cuts, at) % shown.workers.length] || 0, nWorkers);
    const space = n > 1 ? 7 : 0, depth = flat && slices === 1 ? 5 : 12;
    const face = size - depth - (n - 1) * space, tall = flat ? face * 0.62 : face;
    const line = cleave.colour("ink");
    for (let i = n - 1; i >= 0; i--) {
      const x = i * space, y = depth + (n - 1 - i) * space + (face - tall) / 2;
      const part = n === all ? i : Math.round(i * (all - 1) / Math.max(1, n - 1));
      for (let k = slices - 1; k >= 0; k--) {
        const d0 = depth * k / slices, d1 = depth * (k + 1) / slices;
        const shade = colour({ sample: part, channel: k });
        g.append("path").attr("d", `M${x + d0},${y - d0}L${x + d1},${y - d1}h${face}L${x + face + d0},${y - d0}z`)
          .attr("fill", d3.rgb(shade).brighter(0.5)).attr("stroke", line).attr("stroke-width", 0.6);
        g.append("path").attr("d", `M${x + face + d0},${y - d0}L${x + face + d1},${y - d1}v${tall}L${x + face + d0},${y + tall - d0}z`)
          .attr("fill", d3.rgb(shade).darker(0.5)).attr("stroke", line).attr("stroke-width", 0.6);
      }
      for (let r = 0; r < rows; r++)
        for (let c = 0; c < columns; c++)
          g.append("rect").attr("x", x + face * c / columns).attr("y", y + tall * r / rows)
            .attr("width", face / columns).attr("height", tall / rows)
            .attr("fill", colour({ sample: part, height: r, width: c })).attr("stroke", line).attr("stroke-width", 0.6);
    }
  };

  /* ---- text ---- */

  const cutText = (cuts) => cuts.map((c) => c.loop + " / " + c.parts).join(", ") || "not cut";

  function tell(s, shown) {
    const n = shown.node;
    const lines = [n.name + " (" + n.op + ")", "output " + n.shape.join(" × "), "cut: " +
      (shown.cuts.map((c) => c.loop + " (" + cleave.cutNames[c.dimension] + ") into " +
        (c.sizes ? "[" + c.sizes.slice(0, 12).join(", ") + (c.sizes.length > 12 ? ", …" : "") + "]" : c.parts)).join(", ") || "not cut")];
    if (n.parameters) lines.push(cleave.count(n.parameters) + " parameters");
    if (n.flops) lines.push(cleave.count(n.flops) + "FLOP forward");
    if (shown.folded.length) lines.push("with " + shown.folded.map((x) => x.name).join(", "));
    if (s.plan && s.plan.stages && s.plan.stages.length > 1) lines.push("stage " + shown.stage);
    const w = shown.workers.slice(0, shown.cuts.reduce((p, c) => p * c.parts, 1));
    lines.push(w.length > 12 ? w.length + " workers" : "worker " + w.join(", "));
    return lines.join("\n");
  }

  /* ---- the drawing ---- */

  /* dagre lays the layers out from left to right; what is wider than the page goes on below, band by
   * band, as text does. */
  function layOut(shown, columns) {
    const g = new dagre.graphlib.Graph();
    g.setGraph({ rankdir: "LR", nodesep: 14, ranksep: 34, marginx: 12, marginy: 12 });
    g.setDefaultEdgeLabel(() => ({}));
    for (const x of shown) g.setNode(x.place, { width, height });
    for (const x of shown) for (const from of x.sources) g.setEdge(from, x.place);
    dagre.layout(g);
    const ranks = [...new Set(shown.map((x) => Math.round(g.node(x.place).x)))].sort((a, b) => a - b);
    const bandOf = new Map(ranks.map((x, i) => [x, Math.floor(i / columns)]));
    const bands = d3.range(Math.ceil(ranks.length / columns)).map((b) => ({ left: ranks[b * columns] - width / 2, top: Infinity, bottom: -Infinity }));
    const place = (x) => { const at = g.node(x.place); return { at, band: bandOf.get(Math.round(at.x)) }; };
    for (const x of shown) {
      const { at, band } = place(x);
      bands[band].top = Math.min(bands[band].top, at.y - height / 2);
      bands[band].bottom = Math.max(bands[band].bottom, at.y + height / 2);
    }
    let y = 14;
    for (const b of bands) {
      b.shift = y - b.top;
      b.y = y;
      y += b.bottom - b.top + 38;
    }
    const spots = shown.map((x) => { const { at, band } = place(x);
      return { x: at.x - bands[band].left + margin, y: at.y + bands[band].shift, band }; });
    const edges = g.edges().map((edge) => {
      const a = spots[edge.v], b = spots[edge.w];
      if (a.band === b.band)
        return g.edge(edge).points.map((p) => ({ x: p.x - bands[a.band].left + margin, y: p.y + bands[a.band].shift }));
      const turn = bands[b.band].y - 12 - (edge.v % 3) * 4, out = a.x + width / 2, into = b.x - width / 2;
      return [{ x: out, y: a.y }, { x: out + 14, y: a.y }, { x: out + 14, y: turn }, { x: out, y: turn },
        { x: into - 10, y: turn }, { x: into - 24, y: turn }, { x: into - 14, y: b.y }, { x: into, y: b.y }];
    });
    return { spots, edges, width: d3.max(spots, (p) => p.x) + width / 2 + 24, height: y - 38 + 12 };
  }

  function drawNodes(view, s, shown, g) {
    const nWorkers = (s.plan && s.plan.workers) || 1, colours = cleave.cutColours();
    /* Neighbours differ in how their names end. */
    const short = (text, n) => text.length > n ? "…" + text.slice(1 - n) : text;
    for (const x of shown) {
      const at = g.spots[x.place], kind = cleave.cutKind(x.cuts);
      const node = view.append("g").attr("class", "node").attr("tabindex", 0).attr("role", "img")
        .attr("aria-label", tell(s, x).replace(/\n/g, "; ")).attr("data-cut", kind).attr("data-layer", x.node.name)
        .attr("transform", `translate(${at.x - width / 2},${at.y - height / 2})`);
      node.append("rect").attr("class", "box").attr("width", width).attr("height", height).attr("rx", 7);
      node.append("rect").attr("width", 7).attr("height", height).attr("rx", 3).attr("fill", colours[kind]);
      if (s.plan && x.number > 0) cleave.drawPartition(node.append("g").attr("transform", "translate(14,9)"), x, nWorkers, 48);
      const left = s.plan && x.number > 0 ? 72 : 16, text = (y, value, small) => node.append("text").attr("x", left).attr("y", y)
        .attr("class", small ? "small" : "").text(value);
      text(18, short(x.node.name.replace(/\.conv$/, ""), s.plan ? 14 : 22));
      text(33, x.node.op.replace(/_/g, " ").replace("softmax cross entropy", "softmax loss") + (x.folded.length ? " +" + x.folded.length : ""), true);
      text(46, x.node.shape.slice(1).join("×") || "per sample", true);
      if (s.plan && x.number > 0)
        text(59, short(cutText(x.cuts), 16) + (s.plan.stages.length > 1 ? " · s" + x.stage : ""), true).attr("fill", "currentColor");
      const show = (px, py) => cleave.showTip(tell(s, x), px, py);
      node.on("mousemove", () => show(d3.event.clientX, d3.event.clientY)).on("mouseleave", cleave.hideTip)
        .on("focus", function () { const b = this.getBoundingClientRect(); show(b.left, b.bottom - 10); })
        .on("blur", cleave.hideTip);
    }
  }

  function drawEdges(view, g) {
    const curve = d3.line().x((p) => p.x).y((p) => p.y).curve(d3.curveBasis);
    for (const points of g.edges)
      view.append("path").attr("class", "edge").attr("d", curve(points)).attr("marker-end", "url(#arrow)");
  }

  /* Wheel and drag by d3-zoom; the wheel only once the picture has the focus, so that the page can be
   * scrolled past it. */
  function addZoom(svg, view, size, box) {
    const zoom = d3.zoom().scaleExtent([0.05, 4])
      .filter(() => !d3.event.button && (d3.event.type !== "wheel" || d3.event.ctrlKey || document.activeElement === svg.node()))
      .on("zoom", () => view.attr("transform", d3.event.transform));
    svg.call(zoom).on("dblclick.zoom", null);
    const fit = () => {
      const k = Math.min(box().width / size.width, box().height / size.height, 1.2);
      svg.call(zoom.transform, d3.zoomIdentity.translate((box().width - size.width * k) / 2, (box().height - size.height * k) / 2).scale(k));
    };
    const start = () => {
      const k = Math.min(1, box().width / size.width);
      svg.call(zoom.transform, d3.zoomIdentity.translate((box().width - size.width * k) / 2, 0).scale(k));
    };
    const by = (k) => svg.call(zoom.scaleBy, k), move = (x, y) => svg.call(zoom.translateBy, x, y);
    svg.on("keydown", () => {
      const keys = { "+": () => by(1.3), "=": () => by(1.3), "-": () => by(1 / 1.3), "0": fit, ArrowLeft: () => move(80, 0),
        ArrowRight: () => move(-80, 0), ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60) };
      if (!keys[d3.event.key]) return;
      d3.event.preventDefault();
      keys[d3.event.key]();
    });
    start();
    return { fit, by, start };
  }

  cleave.addSection({
    id: "network", title: "Network and cuts",
    has: (s) => s.network,
    say: "Each box is a layer; its stripe says what the plan cuts, the block how: one block for each part of the " +
      "samples, depth for channels, the front for height and width. Colours of the pieces are workers.",
    draw(parent, s) {
      const shown = foldNodes(s), room = parent.clientWidth - 18;
      const columns = Math.max(1, Math.floor(room / (room < 600 ? 1 : 0.8) / (width + 34))), g = layOut(shown, columns), size = g;
      const kinds = [...new Set(shown.slice(1).map((x) => cleave.cutKind(x.cuts)))];
      if (s.plan) parent.append(cleave.legend(kinds.map((k) => [cleave.cutNames[k], cleave.cutColours()[k]])));
      const plot = e("div", { class: "plot" });
      const tools = e("div", { class: "tools" });
      const figure = e("figure", { "data-chart": "network" }, tools, plot, e("p", { class: "hint",
        text: "Drag to move; click it, then wheel or + and − to zoom, 0 for all of it. Tab goes through the layers. " +
          shown.length + " boxes for " + s.network.nodes.length + " layers." }));
      parent.append(figure);
      const tall = Math.max(120, Math.min(620, Math.ceil(size.height * Math.min(1, room / size.width)) + 8));
      const svg = d3.select(plot).append("svg").attr("height", tall).attr("tabindex", 0).attr("role", "group")
        .attr("aria-label", "The network as a graph of " + shown.length + " layers");
      svg.append("defs").append("marker").attr("id", "arrow").attr("viewBox", "0 0 8 8").attr("refX", 7).attr("refY", 4)
        .attr("markerWidth", 7).attr("markerHeight", 7).attr("orient", "auto").append("path").attr("d", "M0,0L8,4L0,8z")
        .attr("fill", cleave.colour("grey"));
      const view = svg.append("g");
      drawEdges(view, g);
      drawNodes(view, s, shown, g);
      const zoom = addZoom(svg, view, size, () => ({ width: plot.clientWidth - 16, height: tall }));
      for (const [text, act] of [["+", () => zoom.by(1.4)], ["−", () => zoom.by(1 / 1.4)], ["All", zoom.fit], ["Start", zoom.start]])
        tools.append(e("button", { type: "button", text, onclick: act, "aria-label": { "+": "zoom in", "−": "zoom out" }[text] || text }));
    },
  });
})();
