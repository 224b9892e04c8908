/* What the C side wrote (src/report/gather.c), and values derived from it. */
"use strict";
(function () {
  cleave.page = JSON.parse(document.getElementById("data").textContent);
  cleave.subjects = cleave.page.subjects;
  cleave.current = 0;
  for (const s of cleave.subjects) s.wrong = cleave.checkSubject(s);
  cleave.subject = () => cleave.subjects[cleave.current];
  /* Network and timeline are those of a candidate that was clicked, or its own. */
  cleave.shown = () => cleave.subject().shown || cleave.subject();

  /* Short names: the last parts of the paths, as far as they differ. */
  const parts = cleave.subjects.map((s) => s.name.split("/").filter((p) => p && p !== "."));
  cleave.subjects.forEach((s, i) => {
    const end = (p, n) => p.slice(-n).join("/");
    let n = 1;
    while (n < parts[i].length && parts.some((p, k) => k !== i && end(p, n) === end(parts[i], n))) n++;
    s.label = end(parts[i], n) || s.name;
  });

  cleave.timeline = (s, kind) => s.timelines.find((t) => t.kind === kind);

  /* ---- timelines (src/report/trace_packing.c says how they are packed) ---- */

  cleave.categories = ["compute", "communicate", "wait", "load", "step"];

  function decode(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  /* Slices as columns; those of lane l (2 * worker, and one more for communication) are
   * first[l] .. first[l + 1] - 1, and reach[i] is the last end of those up to i. Done once. */
  cleave.unpackTimeline = function (t) {
    if (t.slices) return t.slices;
    const bytes = decode(t.data), lanes = t.counts.length;
    const first = new Uint32Array(lanes + 1);
    for (let l = 0; l < lanes; l++) first[l + 1] = first[l] + t.counts[l];
    const n = first[lanes];
    const s = { first, n, begin: new Int32Array(n), end: new Int32Array(n), reach: new Int32Array(n),
      name: new Uint32Array(n), category: new Uint8Array(n) };
    let at = 0;
    function number() {
      let value = 0, shift = 1, byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * shift;
        shift *= 128;
      } while (byte > 127);
      return value;
    }
    for (let l = 0, i = 0; l < lanes; l++) {
      let reached = 0, furthest = 0;
      for (; i < first[l + 1]; i++) {
        const step = number();
        s.begin[i] = reached + (step % 2 ? -(step + 1) / 2 : step / 2);
        s.end[i] = reached = s.begin[i] + number();
        s.reach[i] = furthest = Math.max(furthest, reached);
        const tag = number();
        s.name[i] = Math.floor(tag / 8);
        s.category[i] = tag % 8;
      }
    }
    delete t.data;
    return (t.slices = s);
  };

  /* "forward conv1 of micro-batch 2" -> what it does, and to which layer. */
  cleave.instruction = function (name) {
    const plain = name.replace(/ of micro-batch \d+$/, "").replace(/ (to|from) worker \d+$/, "")
      .replace(/ over \d+ workers$/, "");
    const space = plain.indexOf(" ");
    return { verb: space < 0 ? plain : plain.slice(0, space), layer: space < 0 ? "" : plain.slice(space + 1) };
  };

  /* The layer that an instruction's name speaks of: "reduce conv1.weight over 4 workers" -> "conv1". */
  cleave.layerOf = function (name) {
    const { layer } = cleave.instruction(name.replace(/^wait for /, "")), known = layerNames();
    if (known.has(layer)) return layer;
    const dot = layer.lastIndexOf(".");
    return dot > 0 && known.has(layer.slice(0, dot)) ? layer.slice(0, dot) : layer;
  };
  function layerNames() {
    const s = cleave.subject();
    if (!s.layerNames) s.layerNames = new Set((s.network ? s.network.nodes : []).map((n) => n.name));
    return s.layerNames;
  }

  /* ---- the layer that was chosen: in the network, in the timeline, or by the search ---- */

  let watchers = [];
  /* {name, layers, group}: those that are drawn as one with it are among the layers; of a block that was
   * unfolded, `group` is its box. */
  cleave.chosen = null;
  cleave.whenChosen = (f) => watchers.push(f);
  cleave.forgetChosen = () => { watchers = []; cleave.chosen = null; };
  /* `found`: the pictures go to where it is. */
  cleave.choose = function (name, layers, found, group) {
    const known = name && (layers || layerNames().has(name));
    cleave.chosen = known ? { name, layers: layers || [name], found: !!found, group: group || null } : null;
    for (const f of watchers) f();
    return !!known;
  };

  /* ---- links ---- */

  /* Those of the prediction that carry something, with the share of the step that each is busy where
   * its bandwidth is known; the busiest first. */
  cleave.busyLinks = function (s) {
    const p = s.prediction, speeds = new Map(((s.machine && s.machine.links) || []).map((l) => [l.name, l.bytes_per_s]));
    const share = (l) => l.share !== undefined ? l.share : speeds.get(l.name) > 0 && p.step_s > 0 ? l.bytes / speeds.get(l.name) / p.step_s : undefined;
    const list = ((p && p.links) || []).filter((l) => l.bytes > 0).map((l) => ({ name: l.name, bytes: l.bytes,
      bytes_per_s: l.bytes_per_s || speeds.get(l.name), share: share(l) }));
    const known = list.every((l) => l.share !== undefined && l.share !== null);
    return { known, list: list.sort((a, b) => known ? b.share - a.share || b.bytes - a.bytes : b.bytes - a.bytes) };
  };

  const groups = ["forward", "backward", "update", "other", "communicate", "wait", "load"];
  cleave.groups = groups;
  cleave.groupColours = () => ({ forward: cleave.colour("blue"), backward: cleave.colour("orange"),
    update: cleave.colour("green"), other: cleave.colour("olive"), communicate: cleave.colour("purple"),
    wait: cleave.colour("idle"), load: cleave.colour("cyan") });
  /* Of a computing slice: which group its name belongs to. */
  cleave.groupOf = function (name, category) {
    if (category === 1) return 4;
    if (category === 2) return 5;
    if (category === 3) return 6;
    if (category === 4) return 3;
    const verb = cleave.instruction(name).verb;
    return verb.startsWith("forward") || verb === "recompute" ? 0
      : verb.startsWith("backward") ? 1 : verb === "update" ? 2 : 3;
  };

  /* Mean over the workers, in seconds: computing by layer type, and waiting. */
  cleave.typeTimes = function (s, t) {
    if (t.types) return t.types;
    const ops = new Map((s.network ? s.network.nodes : []).map((n) => [n.name, n.op]));
    const slices = cleave.unpackTimeline(t), sums = {};
    const typeOfName = t.names.map((name) => {
      const { verb, layer } = cleave.instruction(name);
      if (verb === "update" || verb === "load") return verb;
      if (verb.startsWith("forward") || verb.startsWith("backward") || verb === "recompute")
        return ops.get(layer) || "layers";
      return "copies and sums";
    });
    for (let w = 0; w < t.workers; w++)
      for (let i = slices.first[2 * w]; i < slices.first[2 * w + 1]; i++) {
        const c = slices.category[i];
        const type = c === 2 ? "waiting" : c === 4 ? "start and end" : typeOfName[slices.name[i]];
        sums[type] = (sums[type] || 0) + (slices.end[i] - slices.begin[i]);
      }
    for (const key of Object.keys(sums)) sums[key] *= t.quantum_s / t.workers;
    return (t.types = sums);
  };

  /* ---- cuts ---- */

  const dimensions = { n: "sample", k: "channel", o: "channel", g: "channel", c: "channel",
    p: "height", h: "height", q: "width", w: "width" };
  cleave.cutColours = () => ({ none: cleave.colour("pale"), sample: cleave.colour("blue"),
    channel: cleave.colour("orange"), height: cleave.colour("green"), width: cleave.colour("cyan"),
    sum: cleave.colour("purple"), several: cleave.colour("red") });
  cleave.cutNames = { none: "not cut", sample: "samples", channel: "channels", height: "height",
    width: "width", sum: "a sum (partial results)", several: "several at once" };

  /* Of a layer of the plan: by dimension how many parts, in the order of the mesh. */
  cleave.cutsOf = function (layer, node) {
    const cuts = [];
    for (const [loop, value] of Object.entries((layer && layer.cut) || {})) {
      const parts = Array.isArray(value) ? value.length : value;
      const summed = node && node.loops && node.loops.summed && loop in node.loops.summed;
      if (parts > 1)
        cuts.push({ loop, parts, sizes: Array.isArray(value) ? value : null,
          dimension: summed ? "sum" : dimensions[loop] || "sum" });
    }
    return cuts;
  };
  cleave.cutKind = (cuts) => cuts.length === 0 ? "none"
    : cuts.every((c) => c.dimension === cuts[0].dimension) ? cuts[0].dimension : "several";

  /* ---- figures of a subject, whatever it is made of ---- */

  /* A plan's file says what it was made for; one of version 1 names the model alone. */
  cleave.madeFor = (s, key) => s.plan && ((s.plan.made_for && s.plan.made_for[key]) || s.plan[key]);

  cleave.figures = function (s) {
    const p = s.prediction, d = s.done, c = s.config;
    const best = s.search && s.search.candidates.find((x) => x.name === s.search.best);
    const steps = s.steps, line = s.timelines[0];
    /* Of a trace alone; pipedream's holds several steps. */
    const span = (kind) => { const t = cleave.timeline(s, kind); return t && !t.plan.startsWith("pipedream") ? t.span_s : undefined; };
    /* Steps from before a resumption may be of another plan. */
    const from = steps && c && c.first_step ? steps.step.findIndex((x) => x > c.first_step) : 0;
    /* The first steps meet cold caches, and a few are held up by others: medians. */
    const middle = (key) => {
      const some = steps ? steps[key].slice(Math.max(from, 0)) : [];
      return d3.median(some.slice(Math.floor(some.length / 10)), (x) => x);
    };
    /* Of the median step, by the median share: a part and its step are of one and the same step. */
    const part = (key) => {
      const shares = steps ? d3.range(Math.max(from, 0), steps[key].length).map((i) => steps.step_s[i] > 0 && steps[key][i] !== null ? steps[key][i] / steps.step_s[i] : null) : [];
      const share = d3.median(shares.slice(Math.floor(shares.length / 10)), (x) => x);
      return share === undefined ? undefined : share * step_s;
    };
    const batch = (c && c.batch) || (p && p.batch) || (s.search && s.search.batch) || (s.network && s.network.batch);
    const step_s = d && d.median_step_s ? d.median_step_s : middle("step_s");
    const planName = (s.plan && s.plan.name) || (c && c.plan) || (p && p.plan) || (best && best.name) || (line && line.plan);
    /* One predicted time of the whole page: what the run itself named, else what the search chose by. */
    const alike = (key) => !p || !p[key] || !s.search[key] || p[key] === s.search[key];
    const searched = best && best.step_s && best.name === planName && ["model", "batch", "machine"].every(alike) ? best : null;
    const predicted = d && d.predicted_step_s ? { step_s: d.predicted_step_s, error_s: d.predicted_error_s }
      : searched || p || best || { step_s: span("predicted") };
    return {
      model: (s.network && s.network.name) || (c && c.model) || (p && p.model) ||
        (s.search && s.search.model) || (s.limits && s.limits.model) || cleave.madeFor(s, "model") || (s.study && s.study.model),
      data: (c && c.data) || (p && p.data) || (s.search && s.search.data) || (s.limits && s.limits.data),
      plan: planName,
      workers: (s.plan && s.plan.workers) || (p && p.n_workers) || (c && c.workers) ||
        (s.search && s.search.workers) || (line && line.workers),
      batch,
      machine: (p && p.machine) || (s.search && s.search.machine) || (s.limits && s.limits.machine) || (s.study && s.study.machine),
      predicted_s: predicted.step_s,
      error_s: predicted.error_s,
      fits: p && p.fits !== undefined ? p.fits : best && best.name === planName ? best.fits : undefined,
      measured_s: step_s || (p || d ? undefined : span("measured")),
      compute_s: part("compute_s"), communicate_s: part("communicate_s"), wait_s: part("wait_s"),
      /* A run that was stopped did not say it. */
      images_per_s: d && d.images_per_s ? d.images_per_s : step_s && batch ? batch / step_s : p ? p.images_per_s : best && best.images_per_s,
      memory_bytes: d ? d.memory_bytes : p ? p.memory_bytes : best && best.memory_bytes,
      bytes_moved: d ? d.bytes_moved : p ? p.bytes_moved : best && best.bytes_moved,
      accuracy: d && d.test_accuracy !== null ? d.test_accuracy : undefined,
      epoch_s: p ? p.epoch_s : best && best.epoch_s,
    };
  };
})();
