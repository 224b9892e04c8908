/* What of a network is drawn as one box: layers that only pass through stand with the one before them,
 * and repeated blocks that the plan cuts alike become one box. */
"use strict";
(function () {
  const passing = /^(relu6?|logistic|tanh|batch_norm|dropout|flatten|local_response_norm)$/;
  const cutKey = (cuts) => JSON.stringify(cuts.map((c) => [c.dimension, c.parts]));

  function stageWorkers(s, stage) {
    const stages = s.plan && s.plan.stages;
    return stages && stages[stage] ? stages[stage].workers : [0];
  }

  /* Boxes: {node, number, place, cuts, stage, workers, folded, sources}. */
  cleave.foldPassing = function (s) {
    const layers = (s.plan && s.plan.layers) || {}, nodes = s.network.nodes, readers = nodes.map(() => 0);
    for (const n of nodes) for (const i of n.inputs) readers[i]++;
    const shown = [], owner = [];
    nodes.forEach((n, i) => {
      const layer = layers[n.name], cuts = cleave.cutsOf(layer, n);
      const stage = (layer && layer.stage) || 0;
      const into = n.inputs.length === 1 ? shown[owner[n.inputs[0]]] : null;
      if (into && passing.test(n.op) && into.last === n.inputs[0] && readers[n.inputs[0]] === 1 && into.number > 0 &&
          into.stage === stage && (cutKey(into.cuts) === cutKey(cuts) || !layer || n.op === "flatten")) {
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
  };

  /* "layer3.4.conv2" is of the block "layer3.4", "Mixed_5b.branch1x1.conv" of "Mixed_5b"; of "features.3"
   * the number is no block. */
  function blockOf(name) {
    const parts = name.split(".");
    if (parts.length > 2 && /^\d+$/.test(parts[1])) return parts[0] + "." + parts[1];
    return parts.length > 1 && !/^\d+$/.test(parts[1]) && parts[1] !== "conv" ? parts[0] : null;
  }

  /* Of the boxes, in the order of the layers, neighbours of one block that are cut alike are one; then
   * neighbouring blocks of the same layers and cuts are one. `open`: the names of those that stay apart.
   * Both are stretches of the order in which layers come, so no circle can arise. */
  cleave.foldBlocks = function (boxes, open) {
    const alike = (x) => cutKey(x.cuts) + " " + x.stage + " " + x.workers.join(",");
    const runs = [];
    for (const x of boxes) {
      const last = runs[runs.length - 1], block = blockOf(x.node.name);
      if (last && block && last.block === block && last.alike === alike(x)) last.boxes.push(x);
      else runs.push({ block, alike: alike(x), boxes: [x] });
    }
    const groups = [];
    for (const run of runs) {
      run.ops = run.boxes.filter((x) => !/downsample/.test(x.node.name)).map((x) => x.node.op).join(" ");
      const last = groups[groups.length - 1], kind = (name) => !name ? "" : name.includes(".") ? name.split(".")[0] : name.replace(/\d.*$/, "");
      const same = last && run.boxes.length > 1 && last.alike === run.alike && last.ops === run.ops && kind(last.block) === kind(run.block);
      if (same && last.blocks[last.blocks.length - 1] !== run.block) { last.boxes.push(...run.boxes); last.blocks.push(run.block); }
      else groups.push({ ...run, boxes: run.boxes.slice(), blocks: [run.block] });
    }
    const place = new Map(), out = [];
    for (const g of groups) {
      const apart = g.boxes.length === 1 || open.has(g.boxes[0].node.name);
      for (const some of apart ? g.boxes.map((x) => [x]) : [g.boxes]) {
        const x = some[0], end = some[some.length - 1];
        for (const inner of some) place.set(inner.place, out.length);
        out.push(some.length === 1 ? { ...x, place: out.length, group: apart && g.boxes.length > 1 ? g.boxes[0].node.name : null }
          : { ...x, place: out.length, boxes: some, blocks: g.blocks, end,
            folded: some.flatMap((b, i) => i ? [b.node, ...b.folded] : b.folded) });
      }
    }
    boxes.forEach((x) => {
      const at = out[place.get(x.place)];
      at.from = at.from || new Map();
      for (const k of x.sources) {
        const to = place.get(k);
        if (to !== at.place && !at.from.has(to)) at.from.set(to, k);
      }
    });
    /* `from`: by the box that an arrow comes from, the one inside it that it truly comes from. */
    for (const x of out) x.sources = x.from ? [...x.from.keys()] : [];
    return out;
  };

  /* Stretches of layers that are cut alike, in their order: [{first, last, n, box}]. */
  cleave.cutRuns = function (boxes) {
    const runs = [];
    for (const x of boxes) {
      if (x.number === 0) continue;
      const key = cutKey(x.cuts) + " " + x.stage + " " + x.workers.length, last = runs[runs.length - 1], name = (x.folded[x.folded.length - 1] || x.node).name;
      if (last && last.key === key) { last.last = name; last.n += 1 + x.folded.length; }
      else runs.push({ key, first: x.node.name, last: name, n: 1 + x.folded.length, box: x });
    }
    return runs;
  };
  cleave.sameCut = (a, b) => cutKey(a.cuts) === cutKey(b.cuts) && a.stage === b.stage && a.workers.join() === b.workers.join();
})();
