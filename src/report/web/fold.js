/* What of a network is drawn as one box: layers that only pass through stand with the one before them,
 * blocks (ResNet's, Inception's modules) become one box, and repeated blocks that are cut alike one pile. */
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

  /* "layer3.4.conv2" is of the block "layer3.4", "encoder.layers.0.attn.q" of "encoder.layers.0",
   * "Mixed_5b.branch1x1.conv" of "Mixed_5b"; of "features.3" the number is no block. */
  function blockOf(name) {
    const parts = name.split("."), at = parts.findIndex((x) => /^\d+$/.test(x));
    if (at > 0) return at + 1 < parts.length ? parts.slice(0, at + 1).join(".") : null;
    return parts.length > 1 && !/^(conv|bn|relu)$/.test(parts[1]) ? parts[0] : null;
  }

  /* How often each cut is among the boxes: [{box, n}], in the order in which they come; n counts layers. */
  cleave.cutsAmong = function (boxes) {
    const kinds = new Map();
    for (const x of boxes) {
      const key = cutKey(x.cuts);
      if (!kinds.has(key)) kinds.set(key, { box: x, n: 0 });
      kinds.get(key).n += 1 + x.folded.length;
    }
    return [...kinds.values()];
  };

  /* Two folds. In the order of the layers, the neighbours of one block are one box, however they are cut;
   * then neighbouring blocks of the same layers and cuts are one pile. `open` holds the keys of those that
   * were unfolded: a pile shows its blocks, a block its layers. Both are stretches of the order in
   * which layers come, so no circle can arise. */
  cleave.foldBlocks = function (boxes, open) {
    const runs = [];
    for (const x of boxes) {
      const last = runs[runs.length - 1], block = blockOf(x.node.name);
      if (last && block && last.block === block && last.stage === x.stage) last.boxes.push(x);
      else runs.push({ block, stage: x.stage, boxes: [x] });
    }
    /* The first block of a stage often has a shortcut of its own, and is of the kind of the others. */
    const kindOf = (name) => !name ? "" : name.includes(".") ? name.replace(/\.\d+$/, "") : name.replace(/\d.*$/, "");
    const sign = (run) => run.boxes.length < 2 ? null : JSON.stringify([kindOf(run.block), run.stage,
      run.boxes.filter((x) => !/downsample/.test(x.node.name)).map((x) => [x.node.op, cutKey(x.cuts), x.workers.join()])]);
    const piles = [];
    for (const run of runs) {
      const last = piles[piles.length - 1], signed = sign(run);
      if (last && signed && last.signed === signed && last.runs[last.runs.length - 1].block !== run.block) last.runs.push(run);
      else piles.push({ signed, runs: [run] });
    }
    const place = new Map(), out = [];
    const put = (some, blocks, key, within) => {
      for (const inner of some) place.set(inner.place, out.length);
      out.push(some.length === 1 ? { ...some[0], place: out.length, within }
        : { ...some[0], place: out.length, boxes: some, blocks, key, within, end: some[some.length - 1],
          folded: some.flatMap((b, i) => i ? [b.node, ...b.folded] : b.folded) });
    };
    for (const pile of piles) {
      const all = pile.runs.flatMap((run) => run.boxes), first = all[0].node.name, pileKey = "pile " + first;
      if (all.length > 1 && pile.runs.length > 1 && !open.has(pileKey)) {
        put(all, pile.runs.map((run) => run.block), pileKey, []);
        continue;
      }
      const outside = pile.runs.length > 1 ? [{ key: pileKey, name: pile.runs[0].block + " …", level: 0 }] : [];
      for (const run of pile.runs) {
        const key = "block " + run.boxes[0].node.name, within = [...outside, { key, name: run.block, level: 1 }];
        if (run.boxes.length === 1) put(run.boxes, [run.block], null, outside);
        else if (!open.has(key)) put(run.boxes, [run.block], key, outside);
        else for (const x of run.boxes) put([x], [run.block], null, within);
      }
    }
    boxes.forEach((x) => {
      const at = out[place.get(x.place)];
      at.from = at.from || new Map();
      for (const k of x.sources) {
        const to = place.get(k);
        if (to === at.place) continue;
        if (!at.from.has(to)) at.from.set(to, []);
        at.from.get(to).push([boxes[k], x]);
      }
    });
    for (const x of out) x.sources = [...x.from.keys()];
    return out;
  };

  /* Every box by itself. Of either kind, `from` has by each box that an arrow comes from the pairs that it
   * stands for: [[one that hands on, one that reads], ..]. */
  cleave.foldNothing = (boxes) => boxes.map((x) => ({ ...x, within: [], from: new Map(x.sources.map((k) => [k, [[boxes[k], x]]])) }));

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
