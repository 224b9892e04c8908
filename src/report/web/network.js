/* The network as a graph (dagre lays it out), each layer with its cut in colour and as a small
 * picture: a block of channels, height and width, one for each part of the samples, sliced where the
 * plan cuts it, each piece in the colour of its worker. fold.js puts layers together into boxes; layer.js has the
 * panel of the layer that was chosen. */
"use strict";
(function () {
  const e = cleave.element;
  const width = 176, height = 66, mostParts = 8, margin = 30, rankGap = 56, bandGap = 56;

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

  const cutText = cleave.cutText = (cuts) => cuts.map((c) => c.loop + " / " + c.parts).join(", ") || "not cut";

  const layersIn = (x) => 1 + x.folded.length;
  const nameOf = (x) => x.blocks.length > 1 ? x.blocks[0] + " … " + x.blocks[x.blocks.length - 1] : x.blocks[0];
  const sortText = (sort) => cutText(sort.box.cuts) + ": " + cleave.plural(sort.n, "layer");

  /* A pile or a block. */
  function tellFolded(s, x) {
    const lines = [nameOf(x), (x.blocks.length > 1 ? x.blocks.length + " blocks, " : "") + cleave.plural(layersIn(x), "layer")];
    if (s.plan) lines.push(...cleave.cutsAmong(x.boxes).map(sortText));
    if (s.plan && s.plan.stages && s.plan.stages.length > 1) lines.push("stage " + x.stage);
    lines.push("a click unfolds it");
    return lines.join("\n");
  }

  function tell(s, shown) {
    if (shown.boxes) return tellFolded(s, shown);
    const n = shown.node;
    const lines = [n.name + " (" + n.op + ")", "output " + n.shape.join(" × "), "cut: " +
      (shown.cuts.map((c) => c.loop + " (" + cleave.cutNames[c.dimension] + ") into " +
        (c.sizes ? "[" + c.sizes.slice(0, 12).join(", ") + (c.sizes.length > 12 ? ", …" : "") + "]" : c.parts)).join(", ") || "not cut")];
    if (n.parameters) lines.push(cleave.count(n.parameters) + " parameters");
    if (n.flops) lines.push(cleave.count(n.flops) + "FLOP forward");
    if (shown.folded.length) {
      const names = shown.folded.map((x) => x.name);
      lines.push("with " + names.slice(0, 8).join(", ") + (names.length > 8 ? " and " + (names.length - 8) + " more" : ""));
    }
    if (s.plan && s.plan.stages && s.plan.stages.length > 1) lines.push("stage " + shown.stage);
    const w = shown.workers.slice(0, shown.cuts.reduce((p, c) => p * c.parts, 1));
    lines.push(w.length > 12 ? w.length + " workers" : "worker " + w.join(", "));
    return lines.join("\n");
  }

  /* ---- the drawing ---- */

  /* dagre lays the layers out from left to right; a network wider than the page goes on below, band by
   * band, as text does. */
  function layOut(shown, columns) {
    const g = new dagre.graphlib.Graph();
    g.setGraph({ rankdir: "LR", nodesep: 14, ranksep: rankGap, marginx: 12, marginy: 12 });
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
    let y = 26;
    for (const b of bands) {
      b.shift = y - b.top;
      b.y = y;
      y += b.bottom - b.top + bandGap;
    }
    const spots = shown.map((x) => { const { at, band } = place(x);
      return { x: at.x - bands[band].left + margin, y: at.y + bands[band].shift, band }; });
    const edges = g.edges().map((edge) => {
      const a = spots[edge.v], b = spots[edge.w];
      if (a.band === b.band)
        return g.edge(edge).points.map((p) => ({ x: p.x - bands[a.band].left + margin, y: p.y + bands[a.band].shift }));
      const turn = bands[b.band].y - 26 - (edge.v % 3) * 4, out = a.x + width / 2, into = b.x - width / 2;
      return [{ x: out, y: a.y }, { x: out + 14, y: a.y }, { x: out + 14, y: turn }, { x: out, y: turn },
        { x: into - 10, y: turn }, { x: into - 24, y: turn }, { x: into - 14, y: b.y }, { x: into, y: b.y }];
    });
    g.edges().forEach((edge, i) => Object.assign(edges[i], { from: shown[edge.v], to: shown[edge.w], level: spots[edge.v].band === spots[edge.w].band }));
    return { spots, edges, width: d3.max(spots, (p) => p.x) + width / 2 + 64, height: y - bandGap + 26 };
  }

  /* Neighbours differ in how their names end. */
  const short = (text, n) => text.length > n ? "…" + text.slice(1 - n) : text;

  /* From top to bottom the cuts in the order of the layers, each as long as it has layers. */
  function drawStripe(node, x) {
    const colours = cleave.cutColours(), parts = [];
    for (const inner of x.boxes || [x]) {
      const kind = cleave.cutKind(inner.cuts), last = parts[parts.length - 1], n = 1 + inner.folded.length;
      if (last && last.kind === kind) last.n += n; else parts.push({ kind, n });
    }
    const all = d3.sum(parts, (part) => part.n);
    let y = 0;
    for (const { kind, n } of parts) {
      node.append("rect").attr("y", y).attr("width", 7).attr("height", height * n / all).attr("fill", colours[kind]);
      y += height * n / all;
    }
  }

  /* Of a block whose layers are cut in several ways: the two cuts that most of them have. */
  function drawSorts(node, sorts, text) {
    const colours = cleave.cutColours(), shown = sorts.slice().sort((a, b) => b.n - a.n).slice(0, 2);
    shown.forEach((sort, i) => {
      const more = i === 1 && sorts.length > 2 ? ", +" + (sorts.length - 2) : "";
      node.append("rect").attr("class", "swatch").attr("x", 16).attr("y", 38 + 14 * i).attr("width", 8).attr("height", 8).attr("fill", colours[cleave.cutKind(sort.box.cuts)]);
      text(46 + 14 * i, 28, short(cutText(sort.box.cuts), 14) + " · " + sort.n + more).attr("class", "small cut");
    });
  }

  function drawNodes(view, s, shown, g, act) {
    const nWorkers = (s.plan && s.plan.workers) || 1;
    for (const x of shown) {
      const at = g.spots[x.place], sorts = x.boxes && s.plan ? cleave.cutsAmong(x.boxes) : [], mixed = sorts.length > 1;
      const node = view.append("g").attr("class", "node").attr("tabindex", 0).attr("role", x.key ? "button" : "img")
        .attr("aria-label", tell(s, x).replace(/\n/g, "; ")).attr("data-cut", mixed ? "mixed" : cleave.cutKind(x.cuts)).attr("data-layer", x.node.name)
        .attr("transform", `translate(${at.x - width / 2},${at.y - height / 2})`).attr("data-holds", x.boxes ? x.boxes.length : 1)
        .attr("data-blocks", x.boxes ? x.blocks.length : 0);
      if (x.boxes && x.blocks.length > 1) /* a pile */
        for (const d of [8, 4]) node.append("rect").attr("class", "box").attr("x", d).attr("y", d).attr("width", width).attr("height", height).attr("rx", 7);
      node.append("rect").attr("class", "box").attr("width", width).attr("height", height).attr("rx", 7);
      drawStripe(node, x);
      const pictured = s.plan && x.number > 0 && !mixed, left = pictured ? 72 : 16;
      if (pictured) cleave.drawPartition(node.append("g").attr("transform", "translate(14,9)"), x, nWorkers, 48);
      const text = (y, at, value) => node.append("text").attr("x", at).attr("y", y).text(value), small = (y, value) => text(y, left, value).attr("class", "small");
      if (x.boxes) {
        const many = x.blocks.length > 1;
        text(18, left, short(x.blocks[0], pictured ? 11 : 20) + (many ? " …" : ""));
        small(33, mixed ? (many ? x.blocks.length + " blocks, " : "") + layersIn(x) + " layers" : many ? x.blocks.length + " blocks" : layersIn(x) + " layers");
        if (!mixed) small(46, many ? layersIn(x) + " layers" : x.end.node.shape.slice(1).join("×"));
        const sign = node.append("g").attr("class", "unfold").attr("transform", `translate(${width - 13},13)`);
        sign.append("circle").attr("r", 7);
        sign.append("path").attr("d", "M-4,0H4M0,-4V4");
      } else {
        const inside = x.within.find((w) => w.level === 1), name = inside ? x.node.name.slice(inside.name.length + 1) : x.node.name;
        text(18, left, short(name.replace(/\.conv$/, ""), pictured ? 14 : 22));
        small(33, x.node.op.replace(/_/g, " ").replace("softmax cross entropy", "softmax loss") + (x.folded.length ? " +" + x.folded.length : ""));
        small(46, x.node.shape.slice(1).join("×") || "per sample");
      }
      if (mixed) drawSorts(node, sorts, text);
      else if (s.plan && x.number > 0) small(59, short(cutText(x.cuts), 16) + (s.plan.stages && s.plan.stages.length > 1 ? " · s" + x.stage : "")).attr("class", "small cut");
      const show = (px, py) => cleave.showTip(tell(s, x), px, py), click = () => x.key ? act.unfold(x) : act.choose(x);
      node.on("mousemove", () => show(d3.event.clientX, d3.event.clientY)).on("mouseleave", cleave.hideTip)
        .on("focus", function () { const b = this.getBoundingClientRect(); show(b.left, b.bottom - 10); })
        .on("blur", cleave.hideTip)
        .on("click", () => { if (!d3.event.defaultPrevented) click(); })
        .on("keydown.choose", () => { if (d3.event.key === "Enter") { d3.event.preventDefault(); click(); } });
    }
  }

  /* Around the layers of a block that was unfolded, one in each band: a click on the name folds them again. */
  function drawFrames(view, shown, g, act) {
    const frames = new Map();
    for (const x of shown)
      for (const { key, name, level } of x.within) {
        const at = g.spots[x.place], id = key + " " + at.band;
        if (!frames.has(id)) frames.set(id, { key, name, level, x0: Infinity, x1: -Infinity, y0: Infinity, y1: -Infinity });
        const f = frames.get(id);
        Object.assign(f, { x0: Math.min(f.x0, at.x), x1: Math.max(f.x1, at.x), y0: Math.min(f.y0, at.y), y1: Math.max(f.y1, at.y) });
      }
    for (const f of [...frames.values()].sort((a, b) => a.level - b.level)) {
      const pad = f.level ? 8 : 13, x = f.x0 - width / 2 - pad, y = f.y0 - height / 2 - pad, tall = f.y1 - f.y0 + height + 2 * pad;
      view.append("rect").attr("class", "frame").attr("x", x).attr("y", y).attr("width", f.x1 - f.x0 + width + 2 * pad).attr("height", tall).attr("rx", 10);
      const fold = () => { cleave.hideTip(); act.fold(f.key); };
      view.append("text").attr("class", "fold").attr("tabindex", 0).attr("role", "button").attr("aria-label", "fold " + f.name)
        .attr("x", x + 8).attr("y", f.level ? y - 2 : y + tall + 10).text("− " + f.name)
        .on("click", () => { if (!d3.event.defaultPrevented) fold(); }).on("keydown", () => { if (d3.event.key === "Enter") fold(); });
    }
  }

  /* Bytes of what a layer hands on in one step, all samples together. */
  const handedOn = (s, x) => x.node.shape.reduce((p, n) => p * n, 1) * (s.config && s.config.precision === "double" ? 8 : 4);

  /* An arrow is marked where the plan has to move what flows along it: its ends are cut, or placed,
   * differently. */
  function drawEdges(view, s, g) {
    const curve = d3.line().x((p) => p.x).y((p) => p.y).curve(d3.curveBasis);
    const told = new Set();
    for (const points of g.edges) {
      const pairs = points.to.from.get(points.from.place), sources = [...new Set(pairs.map(([source]) => source))];
      const moved = s.plan && pairs.some(([source, reader]) => source.number > 0 && !cleave.sameCut(source, reader));
      view.append("path").attr("class", moved ? "edge moved" : "edge").attr("d", curve(points)).attr("marker-end", moved ? "url(#arrow-moved)" : "url(#arrow)");
      /* Once for all arrows of a layer: the same goes to each. */
      const untold = sources.filter((source) => !told.has(source.place));
      if (!untold.length) continue;
      for (const source of untold) told.add(source.place);
      const first = points[0], text = cleave.bytes(d3.sum(untold, (source) => handedOn(s, source)));
      view.append("text").attr("class", "bytes").attr("x", points.level && points.length ? first.x + rankGap / 2 - 2 : first.x + (points.from.boxes ? 11 : 3))
        .attr("y", first.y - 4).attr("text-anchor", points.level ? "middle" : "start").text(text.replace(" ", "\u00a0"));
    }
  }

  /* Wheel and drag by d3-zoom; the wheel only once the picture has the focus, so that the page can be
   * scrolled past it. */
  function addZoom(svg, view, size, box) {
    const zoom = d3.zoom().scaleExtent([0.05, 4])
      .filter(() => !d3.event.button && (d3.event.type !== "wheel" || d3.event.ctrlKey || svg.node().contains(document.activeElement)))
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
    /* A place of the picture comes to the middle. */
    const centre = (spot) => {
      const k = Math.max(0.6, d3.zoomTransform(svg.node()).k);
      svg.call(zoom.transform, d3.zoomIdentity.translate(box().width / 2 - spot.x * k, box().height / 2 - spot.y * k).scale(k));
    };
    /* These spots are in view: where they are, if they are, else as much smaller as they need. */
    const show = (spots) => {
      const x0 = d3.min(spots, (p) => p.x) - width / 2 - 16, x1 = d3.max(spots, (p) => p.x) + width / 2 + 16;
      const y0 = d3.min(spots, (p) => p.y) - height / 2 - 26, y1 = d3.max(spots, (p) => p.y) + height / 2 + 26;
      const now = d3.zoomTransform(svg.node()), { width: w, height: h } = box();
      if (now.applyX(x0) >= 0 && now.applyX(x1) <= w && now.applyY(y0) >= 0 && now.applyY(y1) <= h) return;
      const k = Math.max(0.35, Math.min(now.k, w / (x1 - x0), h / (y1 - y0)));
      svg.call(zoom.transform, d3.zoomIdentity.translate(w / 2 - (x0 + x1) / 2 * k, h / 2 - (y0 + y1) / 2 * k).scale(k));
    };
    start();
    return { fit, by, start, centre, show, transform: () => d3.zoomTransform(svg.node()), restore: (to) => svg.call(zoom.transform, to) };
  }

  cleave.addSection({
    id: "network", title: "Network and cuts",
    has: (s) => s.network,
    say: "Each box is a layer; its stripe says what the plan cuts, the block how: one block for each part of the " +
      "samples, depth for channels, the front for height and width. Colours of the pieces are workers.",
    draw(parent, s) {
      const boxes = cleave.foldPassing(s), open = new Set(), foldable = cleave.foldBlocks(boxes, open).length < boxes.length;
      const kinds = [...new Set(boxes.slice(1).map((x) => cleave.cutKind(x.cuts)))];
      if (s.plan) parent.append(cleave.legend(kinds.map((k) => [cleave.cutNames[k], cleave.cutColours()[k]])));
      const tools = e("div", { class: "tools" }), plot = e("div", { class: "plot" }), side = e("aside", { class: "side", id: "layer", "aria-label": "The chosen layer", hidden: true });
      const hint = e("p", { class: "hint" }), figure = e("figure", { "data-chart": "network" }, tools, e("div", { class: "beside" }, plot, side), hint);
      parent.append(figure);
      let folded = foldable, zoom, shown, g;
      const foldButton = e("button", { type: "button", text: "Fold blocks", onclick: () => { folded = !folded; open.clear(); rebuild(); } });
      const holds = (x, name) => x.node.name === name || x.folded.some((n) => n.name === name);
      const namesOf = (x) => [x.node, ...x.folded].map((n) => n.name), boxOf = (name) => shown.find((x) => holds(x, name));
      const act = {
        isOpen: (key) => open.has(key),
        choose: (x) => cleave.choose(x.node.name, namesOf(x)),
        unfold: (x) => {
          open.add(x.key);
          draw();
          cleave.choose(x.node.name, namesOf(x), false, x);
          zoom.show(boxesOf(namesOf(x)).map((y) => g.spots[y.place]));
          focusOn(x.node.name);
        },
        fold: (key) => {
          open.delete(key);
          draw();
          mark();
          focusOn(key.replace(/^\w+ /, ""));
        },
      };
      const boxesOf = (names) => { const wanted = new Set(names); return shown.filter((x) => namesOf(x).some((name) => wanted.has(name))); };
      const focusOn = (name) => { const i = shown.indexOf(boxOf(name)), node = plot.querySelectorAll(".node")[i]; if (node) node.focus({ preventScroll: true }); };
      /* A layer that was searched for is unfolded, and comes to the middle. */
      const reveal = (name) => {
        for (let x = boxOf(name); x && x.key; x = boxOf(name)) { open.add(x.key); draw(); }
        const x = boxOf(name);
        if (x) zoom.centre(g.spots[x.place]);
      };
      const mark = () => {
        const c = cleave.chosen;
        if (c && c.found) reveal(c.name);
        const marked = new Set(!c ? [] : c.group ? boxesOf(c.layers) : [boxOf(c.name)]);
        d3.select(plot).selectAll(".node").classed("chosen", (_, i) => marked.has(shown[i]));
        cleave.showLayer(side, s, c && boxOf(c.name), act);
      };
      const draw = () => {
        shown = folded ? cleave.foldBlocks(boxes, open) : cleave.foldNothing(boxes);
        foldButton.setAttribute("aria-pressed", folded);
        const before = zoom && zoom.transform();
        ({ zoom, g } = drawGraph(plot, s, shown, parent.clientWidth - 18, act));
        if (before && folded) zoom.restore(before);
        hint.textContent = "Drag to move; click it, then wheel or + and − to zoom, 0 for all of it. Tab goes through the layers, a click or Enter chooses one" +
          (folded ? ", and unfolds a block" : "") + ". On the arrows stand the bytes that a step hands on" +
          (s.plan ? "; a thick one has to be sent, because the cut or the workers change" : "") + ". " + shown.length + " boxes for " + s.network.nodes.length + " layers.";
      };
      const rebuild = () => { zoom = null; draw(); mark(); };
      rebuild();
      for (const [text, go] of [["+", () => zoom.by(1.4)], ["−", () => zoom.by(1 / 1.4)], ["All", () => zoom.fit()], ["Start", () => zoom.start()]])
        tools.append(e("button", { type: "button", text, onclick: go, "aria-label": { "+": "zoom in", "−": "zoom out" }[text] || text }));
      if (foldable) tools.append(foldButton);
      cleave.whenChosen(mark);
      if (s.plan) addCutTable(parent, s, boxes);
      cleave.addExports(figure);
    },
  });

  function drawGraph(plot, s, shown, room, act) {
    const columns = Math.max(1, Math.floor(room / (room < 600 ? 1 : 0.8) / (width + rankGap))), g = layOut(shown, columns);
    const tall = Math.max(120, Math.min(620, Math.ceil(g.height * Math.min(1, room / g.width)) + 8));
    d3.select(plot).select("svg").remove();
    const svg = d3.select(plot).append("svg").attr("height", tall).attr("tabindex", 0).attr("role", "group")
      .attr("aria-label", "The network as a graph of " + shown.length + " boxes");
    const defs = svg.append("defs");
    for (const [id, colour] of [["arrow", "grey"], ["arrow-moved", "purple"]])
      defs.append("marker").attr("id", id).attr("viewBox", "0 0 8 8").attr("refX", 7).attr("refY", 4).attr("markerUnits", "userSpaceOnUse")
        .attr("markerWidth", 10).attr("markerHeight", 10).attr("orient", "auto").append("path").attr("d", "M0,0L8,4L0,8z").attr("fill", cleave.colour(colour));
    const view = svg.append("g");
    drawFrames(view, shown, g, act);
    drawEdges(view, s, g);
    drawNodes(view, s, shown, g, act);
    view.selectAll("text.fold").raise(); /* where arrows pass, too, it can be clicked */
    return { g, zoom: addZoom(svg, view, g, () => ({ width: plot.clientWidth - 16, height: tall })) };
  }

  /* Where the cut changes, in the order of the layers: one row for each stretch that is cut alike. */
  function addCutTable(parent, s, boxes) {
    const runs = cleave.cutRuns(boxes), colours = cleave.cutColours(), stages = s.plan.stages && s.plan.stages.length > 1;
    const row = (r) => e("tr", {}, e("td", { text: r.first === r.last ? r.first : r.first + " … " + r.last }), e("td", { text: r.n }),
      e("td", { class: "left" }, e("i", { class: "swatch", style: "background:" + colours[cleave.cutKind(r.box.cuts)] }),
        r.box.cuts.map((c) => cleave.cutNames[c.dimension].replace(/ \(.*/, "") + " / " + c.parts).join(", ") || "not cut"),
      stages ? e("td", { text: r.box.stage }) : null, e("td", { text: r.box.workers.length }));
    const few = runs.length <= 12;
    parent.append(e("details", { id: "cuts", open: few }, e("summary", { text: "Where the cut changes: " + cleave.plural(runs.length, "stretch").replace("stretchs", "stretches") + " of layers" }),
      e("div", { class: "scroll", tabindex: "0" }, e("table", {}, e("thead", {}, e("tr", {}, ...["layers", "number", "cut", ...(stages ? ["stage"] : []), "workers"].map((t, i) =>
        e("th", { text: t, scope: "col", class: i === 2 ? "left" : null })))), e("tbody", {}, ...runs.map(row))))));
  }
})();
