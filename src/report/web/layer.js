/* The panel of the layer that was chosen, and the search that chooses one. */
"use strict";
(function () {
  const e = cleave.element;

  /* Seconds of a worker by the kind of work for these layers: [verb, predicted, measured], the longest first. */
  function timesOf(s, names) {
    const verbs = new Map(), wanted = new Set(names);
    const lines = s.timelines.filter((t) => t.slices || t.data.length < 4e6);
    lines.forEach((t, k) => {
      const slices = cleave.unpackTimeline(t);
      const verbOf = t.names.map((name) => name.startsWith("wait") || !wanted.has(cleave.layerOf(name)) ? null : cleave.instruction(name).verb);
      for (let i = 0; i < slices.n; i++) {
        const verb = verbOf[slices.name[i]];
        if (verb === null) continue;
        if (!verbs.has(verb)) verbs.set(verb, lines.map(() => 0));
        verbs.get(verb)[k] += (slices.end[i] - slices.begin[i]) * t.quantum_s / t.workers;
      }
    });
    return { kinds: lines.map((t) => t.kind), rows: [...verbs].sort((a, b) => d3.max(b[1]) - d3.max(a[1])) };
  }

  const links = (names) => names.length ? e("span", {}, ...names.flatMap((name, i) =>
    [i ? ", " : "", e("button", { type: "button", class: "plain", text: name, onclick: () => cleave.findLayer(name) })])) : "–";

  function facts(s, box, node) {
    const nodes = s.network.nodes, number = nodes.indexOf(node), pieces = box.cuts.reduce((p, c) => p * c.parts, 1);
    const layer = s.plan && s.plan.layers && s.plan.layers[node.name], cuts = layer ? cleave.cutsOf(layer, node) : [];
    const loops = Object.entries({ ...(node.loops && node.loops.output), ...(node.loops && node.loops.summed) });
    const workers = box.workers.slice(0, pieces);
    return [["operation", node.op.replace(/_/g, " ")], ["output", node.shape.join(" × ")], ["loops", loops.map(([k, n]) => `${k} ${n}`).join(", ")],
      s.plan && number > 0 ? ["cut", cuts.map((c) => `${c.loop} (${cleave.cutNames[c.dimension]}) into ` + (c.sizes ? "[" + c.sizes.slice(0, 16).join(", ") + "]" : c.parts)).join("; ") || "not cut"] : null,
      s.plan && s.plan.stages && s.plan.stages.length > 1 ? ["stage", box.stage] : null,
      s.plan && number > 0 ? ["workers", workers.length > 12 ? workers.length + ": " + workers.slice(0, 8).join(", ") + ", …" : workers.join(", ")] : null,
      ["parameters", node.parameters ? node.parameters.toLocaleString("en") : null], ["forward", node.flops ? cleave.count(node.flops) + "FLOP" : null],
      ["hands on", cleave.bytes(node.shape.reduce((p, n) => p * n, 1) * 4)],
      ["reads", links(node.inputs.map((i) => nodes[i].name))], ["is read by", links(nodes.filter((n) => n.inputs.includes(number)).map((n) => n.name))]];
  }

  /* Of a block or a pile of blocks: sums. */
  function sums(s, group) {
    const all = [group.node, ...group.folded], total = (key) => d3.sum(all, (n) => n[key] || 0), end = group.end.node;
    return [["blocks", group.blocks.length > 1 ? group.blocks.length + ": " + group.blocks.slice(0, 12).join(", ") + (group.blocks.length > 12 ? ", …" : "") : null], ["layers", all.length],
      s.plan ? ["cuts", e("span", {}, ...cleave.cutsAmong(group.boxes).map((sort) => e("span", { class: "line", text: cleave.cutText(sort.box.cuts) + ": " + cleave.plural(sort.n, "layer") })))] : null,
      s.plan && s.plan.stages && s.plan.stages.length > 1 ? ["stage", group.stage] : null,
      ["parameters", total("parameters") ? total("parameters").toLocaleString("en") : null], ["forward", total("flops") ? cleave.count(total("flops")) + "FLOP" : null],
      ["output", end.shape.join(" × ")], ["hands on", cleave.bytes(end.shape.reduce((p, n) => p * n, 1) * 4)]];
  }

  /* Fills the panel with the layer or the block that was chosen, which `box` holds; without one it is hidden. */
  cleave.showLayer = function (side, s, box, act) {
    side.hidden = !box;
    if (!box) return;
    const { name, layers, group } = cleave.chosen, node = s.network.nodes.find((n) => n.name === name);
    const times = timesOf(s, layers), list = group ? sums(s, group) : facts(s, box, node);
    const around = box.within.filter((x) => act.isOpen(x.key));
    side.replaceChildren(
      e("button", { type: "button", class: "close", text: "×", "aria-label": "close", onclick: () => cleave.choose(null) }),
      e("h3", { text: group ? (group.blocks.length > 1 ? group.blocks[0] + " … " + group.blocks[group.blocks.length - 1] : group.blocks[0]) : name }),
      e("dl", {}, ...list.filter((x) => x && x[1] !== null && x[1] !== "").flatMap(([k, x]) => [e("dt", { text: k }), e("dd", {}, typeof x === "number" ? String(x) : x)])),
      ...(times.rows.length ? [
        e("p", { class: "hint", text: "A worker's time in a step" + (layers.length > 1 ? `, of all ${layers.length} layers of this ${group ? "part" : "box"}:` : ":") }),
        cleave.table(["", ...times.kinds], [...times.rows.map(([verb, x]) => [verb.replace(/_/g, " "), ...x.map(cleave.seconds)]),
          ["in all", ...times.kinds.map((_, k) => cleave.seconds(d3.sum(times.rows, (r) => r[1][k])))]])] : []),
      e("div", { class: "tools" },
        s.timelines.length ? e("button", { type: "button", text: "Show it in the timeline", onclick: () => document.getElementById("timeline").scrollIntoView() }) : "",
        ...around.map((x) => e("button", { type: "button", text: "Fold " + x.name, onclick: () => act.fold(x.key) }))));
  };

  /* ---- search ---- */

  cleave.findLayer = (name) => cleave.choose(name, undefined, true);

  /* Names that hold the text, those that begin with it first. */
  cleave.searchLayers = function (s, text) {
    const wanted = text.trim().toLowerCase();
    if (!wanted || !s.network) return [];
    const names = s.network.nodes.map((n) => [n.name, (n.name + " " + n.op.replace(/_/g, " ")).toLowerCase()]).filter(([, x]) => x.includes(wanted));
    return names.sort((a, b) => (b[1].startsWith(wanted) - a[1].startsWith(wanted))).map(([name]) => name);
  };

  /* The box on top: Enter goes to the next layer that is found. */
  cleave.addSearch = function (parent, s) {
    if (!s.network) return;
    const said = e("span", { class: "quiet", role: "status" }), list = e("datalist", { id: "layers" }, ...s.network.nodes.slice(0, 2000).map((n) => e("option", { value: n.name })));
    const input = e("input", { type: "search", id: "search", placeholder: "Find a layer", "aria-label": "Find a layer by its name or operation", list: "layers" });
    let at = -1, found = [], last = "";
    const go = () => {
      if (input.value !== last) { found = cleave.searchLayers(s, input.value); at = -1; last = input.value; }
      if (!found.length) { said.textContent = input.value ? "no layer" : ""; cleave.choose(null); return; }
      at = (at + 1) % found.length;
      said.textContent = `${at + 1} of ${found.length}`;
      cleave.findLayer(found[at]);
      const section = document.getElementById("network");
      if (section) section.scrollIntoView();
    };
    input.addEventListener("change", () => { if (input.value !== last) go(); });
    input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); go(); } });
    parent.append(e("span", { class: "search" }, input, list, said));
  };
})();
