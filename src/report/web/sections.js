/* The sections of the report that are charts of Chart.js. Each is a function (parent, subject) that
 * draws, and says beforehand whether it has anything to draw (`has`). */
"use strict";
(function () {
  const e = cleave.element;
  const moreData = (heads, rows) => e("details", {}, e("summary", { text: "The figures as a table" }),
    cleave.table(heads, rows));
  const sections = (cleave.sections = []);
  cleave.addSection = (s) => sections.push(s);
  const known = (x) => x !== undefined && x !== null;

  /* ---- candidates ---- */

  /* Of the search; without one, of the predictions that were handed in. */
  function candidatesOf(s) {
    if (s.search) return s.search.candidates;
    const list = cleave.subjects.filter((x) => x.prediction || x.done).map((x) => {
      const f = cleave.figures(x), p = x.prediction;
      return { subject: x, name: cleave.subjects.length > 1 || !f.plan ? x.label : f.plan, step_s: f.predicted_s || null, error_s: f.error_s,
        images_per_s: p ? p.images_per_s : f.images_per_s, memory_bytes: f.memory_bytes,
        bytes_moved: f.bytes_moved, fits: p ? p.fits : true, measured_s: f.measured_s };
    });
    return list;
  }

  /* A run beside the candidate of the same name, if both are of the same network, batch, workers and
   * machine. A run is of this host; a missing field is taken to be the same. */
  function measuredOf(c, search) {
    if (c.measured_s !== undefined) return c.measured_s;
    const same = (a, b) => !known(a) || !known(b) || a === b;
    for (const s of cleave.subjects) {
      const f = cleave.figures(s), machine = f.machine || (s.done || s.steps ? "local" : undefined);
      if (f.plan === c.name && f.measured_s && same(c.workers, f.workers) && same(search.model, f.model) &&
          same(search.batch, f.batch) && same(search.machine, machine)) return f.measured_s;
    }
    return undefined;
  }

  /* A subject of the page that is of this plan: it has the network and the timeline. */
  function subjectOf(s, c) {
    if (c.subject !== undefined) return c.subject;
    const f = cleave.figures(s), alike = (x) => { const g = cleave.figures(x); return g.plan === c.name && g.model === f.model && (!known(g.batch) || g.batch === f.batch); };
    return [s, ...cleave.subjects].find((x) => (x.network || x.timelines.length) && alike(x));
  }

  function factsOf(c, measured) {
    return [["step", cleave.seconds(c.step_s) + (c.error_s ? " ± " + cleave.seconds(c.error_s) : "") + (c.clocked === false ? ", estimated only" : "")],
      ["in a trial", c.tried_s && cleave.seconds(c.tried_s)], ["measured", measured && cleave.seconds(measured)],
      ["images/s", c.images_per_s && Math.round(c.images_per_s).toLocaleString("en")],
      ["workers", c.workers], ["memory of the largest worker", c.memory_bytes && cleave.bytes(c.memory_bytes) + (c.fits === false ? ": does not fit" : "")],
      ["moved in a step", known(c.bytes_moved) && cleave.bytes(c.bytes_moved)], ["weights", c.stale && "older than the last step"]].filter(([, x]) => x || x === 0);
  }

  const goTo = (...ids) => { const section = ids.map((id) => document.getElementById(id)).find(Boolean); if (section) section.scrollIntoView(); };

  /* The panel of the candidate that was clicked. Its network and timeline take the place of those below, where
   * the search kept them; another subject of the page that has them is gone to. */
  function showCandidate(panel, s, c, measured) {
    const subject = subjectOf(s, c), f = cleave.figures(s);
    const open = () => {
      if (subject === s) { cleave.showPlan(null); goTo("network", "timeline"); }
      else cleave.showSubject(cleave.subjects.indexOf(subject), () => goTo("network", "timeline"));
    };
    let below;
    if (subject === s) {
      if (s.shown) cleave.showPlan(null);
      below = e("button", { type: "button", text: "Its network and timeline are below", onclick: () => goTo("network", "timeline") });
    } else if (c.plan && s.network) {
      cleave.showPlan(c);
      below = e("button", { type: "button", text: (c.timeline ? "Its network and timeline are" : "Its network is") + " shown below", onclick: () => goTo("network") });
    } else if (subject) below = e("button", { type: "button", text: "Show its network and timeline", onclick: open });
    else below = e("p", {}, c.clocked === false ? "It was only estimated: it has no timeline." : "Its network and timeline are not in this page: 'cleave plan' with --json --details N keeps those of N plans.",
      ...(/^[a-z]+$/.test(c.name) && f.model ? [" This writes them, too: ", e("code", { text: `cleave predict ${f.model}` +
        [["data", f.data], ["batch", f.batch], ["machine", f.machine]].map(([k, x]) => x ? ` --${k} ${x}` : "").join("") + ` --plan ${c.name} --trace t.json --json >p.json` })] : []));
    panel.replaceChildren(e("b", { text: c.name }), e("dl", {}, ...factsOf(c, measured).flatMap(([k, x]) => [e("dt", { text: k }), e("dd", { text: x })])), below);
    panel.hidden = false;
  }

  /* Where the axis of the bars ends: one plan that takes many times as long would make the others too short
   * to be told apart. */
  function endOfAxis(list, measured) {
    const steps = list.map((c) => c.step_s || 0).sort(d3.ascending), longest = d3.max(list, (c) => (c.step_s || 0) + (c.error_s || 0));
    const shown = Math.max(3 * d3.quantile(steps, 0.66), 1.05 * (d3.max(measured, (x) => x || 0) || 0));
    if (longest <= 1.5 * shown) return undefined;
    /* A round figure, as the axis marks them. */
    const unit = 10 ** Math.floor(Math.log10(shown));
    return [1, 2, 3, 5, 10].map((k) => k * unit).find((x) => x >= shown);
  }

  sections.push({
    id: "candidates", title: "Candidates",
    has: (s) => s.search || (cleave.subjects.length === 1 && candidatesOf(s).some((c) => c.step_s)),
    say: "How long a step takes under each plan that was looked at; shorter is better. Whiskers: how far " +
      "off the prediction may be, two times out of three. Diamonds: measured, in the run or in a trial of the best few.",
    draw(parent, s) {
      const all = candidatesOf(s).filter((c) => c.step_s || c.measured_s);
      /* A plan that does not fit is never first, however fast it would be. */
      const ranked = all.slice().sort((a, b) => (a.fits === false) - (b.fits === false) || (a.step_s || a.measured_s) - (b.step_s || b.measured_s));
      const list = ranked.slice(0, 24);
      const best = s.search ? s.search.best : null;
      const colour = (c) => c.fits === false ? cleave.colour("pale")
        : c.name === best ? cleave.colour("green") : c.clocked === false ? cleave.colour("grey") : cleave.colour("blue");
      const measured = list.map((c) => measuredOf(c, s.search || {}));
      const labels = list.map((c) => c.name + (c.fits === false ? " (does not fit)" : c.name === best ? " (chosen)" : c.stale ? " (older weights)" : ""));
      const panel = e("div", { class: "side", id: "candidate", role: "status", hidden: true }), tried = list.some((c) => c.tried_s > 0);
      const config = cleave.bars(labels, [{
          label: "predicted step", data: list.map((c) => c.step_s), errors: list.map((c) => c.error_s || 0), tries: list.map((c) => c.tried_s),
          marks: measured, backgroundColor: list.map(colour), borderColor: list.map((c) => cleave.colour(c.fits === false ? "bad" : "line")), borderWidth: 1,
          maxBarThickness: 22,
        }], { flat: true, title: "time of a step", format: cleave.seconds, cut: endOfAxis(list, measured),
          most: d3.max(list, (c, i) => Math.max((c.step_s || 0) + (c.error_s || 0), measured[i] || 0)),
          tell: (i) => list[i].error_s ? " ± " + cleave.seconds(list[i].error_s) : "",
          more: (i) => [measured[i] ? "measured: " + cleave.seconds(measured[i]) : null,
            list[i].tried_s ? "in a trial: " + cleave.seconds(list[i].tried_s) : null,
            list[i].images_per_s ? Math.round(list[i].images_per_s) + " images/s" : null,
            list[i].memory_bytes ? "largest worker: " + cleave.bytes(list[i].memory_bytes) : null,
            list[i].stale ? "trains with older weights" : null,
            list[i].fits === false ? "does not fit into memory" : null].filter(Boolean) });
      const pick = (i) => showCandidate(panel, s, list[i], measured[i]);
      cleave.chart(parent, {
        id: "candidates", pick, height: 70 + 30 * list.length,
        label: "Bars: predicted time of a step for " + cleave.plural(list.length, "plan") + "; the fastest is " + list[0].name,
        config,
      });
      parent.append(panel, e("p", { class: "hint", text: "A click on a bar (or arrows and Enter) shows that plan; where this page has its network and timeline, these too." + (config.options.scales.x.max ? " Bars that end in a figure are longer than the axis." : "") }));
      const legend = [["chosen", cleave.colour("green")], ["predicted", cleave.colour("blue")],
        ["estimated only", cleave.colour("grey")], ["does not fit", cleave.colour("pale")], ["measured", cleave.colour("red")], ["in a trial", cleave.colour("olive")]];
      const there = { "chosen": !!best, "estimated only": list.some((c) => c.clocked === false), "does not fit": list.some((c) => c.fits === false),
        "measured": measured.some(Boolean), "in a trial": tried };
      parent.append(cleave.legend(legend.filter(([k]) => there[k] !== false)));
      if (all.length > list.length)
        parent.append(e("p", { class: "hint", text: "The fastest " + list.length + " of " + all.length + (all.some((c) => c.fits === false) ? "; plans that do not fit come last." : ".") }));
      parent.append(moreData(["plan", "step", "±", ...(tried ? ["in a trial"] : []), "images/s", "memory", "moved", "fits"],
        ranked.map((c) => [c.name, cleave.seconds(c.step_s), cleave.seconds(c.error_s), ...(tried ? [c.tried_s ? cleave.seconds(c.tried_s) : null] : []), c.images_per_s ? Math.round(c.images_per_s) : null,
          cleave.bytes(c.memory_bytes), cleave.bytes(c.bytes_moved), c.fits === false ? "no" : c.fits ? "yes" : "–"])));
    },
  });

  /* ---- several runs ---- */

  /* A plan that does not fit is marked wherever it stands, and never first. */
  const marked = ([s, f]) => s.label + (f.fits === false ? " (does not fit)" : "");
  const fittingFirst = (list) => list.slice().sort(([, a], [, b]) => (a.fits === false) - (b.fits === false));

  /* Small charts of what a step needs, a bar for each. */
  function drawFigures(parent, list) {
    const pair = e("div", { class: "pair triple" });
    parent.append(pair);
    for (const [id, key, title, format] of [["compare-speed", "images_per_s", "images/s", cleave.count],
      ["compare-memory", "memory_bytes", "memory of the largest worker", cleave.bytes], ["compare-moved", "bytes_moved", "moved in a step", cleave.bytes]]) {
      const some = list.filter(([, f]) => known(f[key]));
      if (some.length < 2) continue;
      cleave.chart(pair, {
        id, height: 74 + 30 * some.length, label: "Bars: " + title + ", by run",
        config: cleave.bars(some.map(marked), [{ label: title, data: some.map(([, f]) => f[key]),
          backgroundColor: some.map(([s, f]) => f.fits === false ? cleave.colour("pale") : cleave.nth(cleave.subjects.indexOf(s))),
          borderColor: cleave.colour("bad"), borderWidth: some.map(([, f]) => f.fits === false ? 1 : 0), maxBarThickness: 18 }], { flat: true, title, format, few: true }),
      });
    }
    if (!pair.children.length) pair.remove();
  }

  /* ---- differences ---- */

  const byTheWay = /^(versions\.began|config\.checkpoint|config\.steps_total|config\.first_step|config\.resumed)$/;

  function drawDifferences(parent) {
    const sides = cleave.subjects.map((s) => new Map([...flatten(s.config || {}, "config.", []), ...flatten(s.versions || {}, "versions.", [])]));
    const known = sides.filter((m) => m.size > 0).length;
    if (known < 2) return;
    const rows = [...new Set(sides.flatMap((m) => [...m.keys()]))].filter((k) => !byTheWay.test(k))
      .filter((k) => new Set(sides.filter((m) => m.size > 0).map((m) => m.get(k))).size > 1);
    parent.append(e("h3", { text: "Differences" }), rows.length
      ? cleave.table(["", ...cleave.subjects.map((s) => s.label)], rows.map((k) => [k.replace(/^(config|versions)\./, "").replace(/_/g, " "),
        ...sides.map((m) => m.size ? m.get(k) : null)]))
      : e("p", { class: "quiet", text: "Nothing in the configuration: the same run, " + (known === 2 ? "twice." : known + " times.") }));
  }

  /* Plans as a table: neighbouring layers that are alike in each of them are one row. */
  function drawPlans(parent) {
    const some = cleave.subjects.filter((s) => s.plan && s.plan.layers);
    if (some.length < 2) return;
    const names = [...new Set(some.flatMap((s) => Object.keys(s.plan.layers)))];
    const nodes = new Map(some.flatMap((s) => s.network ? s.network.nodes.map((n) => [n.name, n]) : []));
    const told = (s, name) => {
      const layer = s.plan.layers[name];
      if (!layer) return { text: "–", kind: "none" };
      const cuts = cleave.cutsOf(layer, nodes.get(name)), stages = s.plan.stages && s.plan.stages.length > 1;
      return { kind: cleave.cutKind(cuts), text: (cuts.map((c) => cleave.cutNames[c.dimension].replace(/ \(.*/, "") + " / " + c.parts).join(", ") || "not cut") +
        (stages ? ", stage " + layer.stage : "") };
    };
    const rows = [];
    for (const name of names) {
      const cells = some.map((s) => told(s, name)), key = JSON.stringify(cells), last = rows[rows.length - 1];
      if (last && last.key === key) last.to = name;
      else rows.push({ key, from: name, to: name, cells });
    }
    const colours = cleave.cutColours();
    const cell = (c) => e("td", { class: "left" }, e("i", { class: "swatch", style: "background:" + colours[c.kind] }), c.text);
    parent.append(e("h3", { text: "Plans" }), e("div", { class: "scroll", tabindex: "0", id: "plans" }, e("table", {},
      e("thead", {}, e("tr", {}, e("th", { text: "layers", scope: "col" }), ...some.map((s) => e("th", { text: s.label, scope: "col", class: "left" })))),
      e("tbody", {}, ...rows.map((r) => e("tr", {}, e("td", { text: r.from === r.to ? r.from : r.from + " … " + r.to }), ...r.cells.map(cell)))))));
  }

  sections.push({
    id: "compare", title: "Side by side",
    has: () => cleave.subjects.length > 1,
    say: "What the report was given, one beside the other.",
    draw(parent) {
      const list = fittingFirst(cleave.subjects.map((s) => [s, cleave.figures(s)]));
      const timed = list.filter(([, f]) => f.measured_s || f.predicted_s);
      if (timed.length)
        cleave.chart(parent, {
          id: "compare", height: 90 + 44 * timed.length, label: "Bars: predicted and measured time of a step, by run",
          pick: (i) => cleave.showSubject(cleave.subjects.indexOf(timed[i][0])),
          config: cleave.bars(timed.map(marked), [
            { label: "predicted", data: timed.map(([, f]) => f.predicted_s || null), errors: timed.map(([, f]) => f.error_s || 0),
              backgroundColor: timed.map(([, f]) => cleave.colour(f.fits === false ? "pale" : "blue")), borderColor: cleave.colour("bad"),
              borderWidth: timed.map(([, f]) => f.fits === false ? 1 : 0), maxBarThickness: 18 },
            ...(timed.some(([, f]) => f.measured_s) ? [{ label: "measured (median)", data: timed.map(([, f]) => f.measured_s || null),
              backgroundColor: cleave.colour("red"), maxBarThickness: 18 }] : []),
          ], { flat: true, title: "time of a step", format: cleave.seconds,
            most: d3.max(timed, ([, f]) => Math.max((f.predicted_s || 0) + (f.error_s || 0), f.measured_s || 0)) }),
        });
      drawFigures(parent, list);
      const columns = [["model", "model", String], ["plan", "plan", String], ["workers", "workers", String], ["batch", "batch", String],
        ["predicted", "predicted_s", cleave.seconds], ["measured", "measured_s", cleave.seconds], ["images/s", "images_per_s", (x) => Math.round(x)],
        ["memory", "memory_bytes", cleave.bytes], ["moved", "bytes_moved", cleave.bytes], ["accuracy", "accuracy", cleave.accuracy], ["fits", "fits", (x) => x ? "yes" : "no"]]
        .filter(([, key]) => list.some(([, f]) => known(f[key])));
      parent.append(cleave.table(["", ...columns.map(([title]) => title)],
        list.map(([s, f]) => [marked([s, f]), ...columns.map(([, key, format]) => known(f[key]) ? format(f[key]) : null)])));
      drawDifferences(parent);
      drawPlans(parent);
    },
  });

  /* ---- memory ---- */

  const mostBars = 64;
  const total = (w) => d3.sum(Object.values(w.memory));

  /* Of many workers, groups of neighbours are shown by the largest of each. */
  function memoryBars(workers) {
    if (workers.length <= mostBars) return workers.map((w, i) => ({ label: String(i), memory: w.memory }));
    const bars = [], per = Math.ceil(workers.length / mostBars);
    for (let i = 0; i < workers.length; i += per) {
      const some = workers.slice(i, i + per);
      bars.push({ label: i + "–" + (i + some.length - 1), memory: some.reduce((a, b) => total(b) > total(a) ? b : a).memory });
    }
    return bars;
  }

  sections.push({
    id: "memory", title: "Memory",
    has: (s) => s.prediction && s.prediction.workers && s.prediction.workers.length > 0 && s.prediction.workers.every((w) => w.memory),
    say: "What each worker holds, by what it is for, and how much it may hold.",
    draw(parent, s) {
      const p = s.prediction, bars = memoryBars(p.workers);
      const classes = Object.keys(bars[0].memory).filter((k) => bars.some((b) => b.memory[k] > 0));
      const most = d3.max(bars, total);
      const limit = p.limit_bytes > 0 ? p.limit_bytes / Math.max(1, p.limit_workers || 1) : 0;
      const near = limit > 0 && limit < 10 * most;
      const said = limit ? "limit of a worker: " + cleave.bytes(limit) +
        (near ? "" : ", " + (limit / most).toFixed(0) + " times the largest: beyond the chart") : "no limit is known";
      cleave.chart(parent, {
        id: "memory", height: 320, note: said +
          (bars.length < p.workers.length ? "; each bar is the largest of a group of workers" : ""),
        label: "Stacked bars: memory of " + cleave.plural(p.workers.length, "worker") + "; the largest needs " + cleave.bytes(most),
        config: cleave.bars(bars.map((b) => b.label), classes.map((k, i) => ({
          label: k.replace(/_/g, " "), data: bars.map((b) => b.memory[k]), backgroundColor: cleave.nth(i),
          categoryPercentage: 0.9, barPercentage: 0.95, maxBarThickness: 90,
        })), { stacked: true, title: "bytes", across: "worker", format: cleave.bytes, most: near ? limit * 1.05 : most,
          more: (i) => "in all: " + cleave.bytes(total(bars[i])),
          lines: near ? [{ axis: "y", value: limit, text: "limit " + cleave.bytes(limit) }] : [] }),
      });
      parent.append(moreData(["worker", ...classes.map((k) => k.replace(/_/g, " ")), "in all"],
        bars.map((b) => [b.label, ...classes.map((k) => cleave.bytes(b.memory[k])), cleave.bytes(total(b))])));
    },
  });

  /* ---- traffic ---- */

  /* Of the search; without one the plan itself among the named strategies, or the runs compared. */
  function trafficOf(s) {
    const own = candidatesOf(s);
    if (s.search || cleave.subjects.length > 1 || !s.strategies) return own;
    return own.concat(s.strategies.filter((x) => !own.some((c) => c.name === x.name)));
  }

  sections.push({
    id: "traffic", title: "Traffic",
    has: (s) => trafficOf(s).some((c) => c.bytes_moved > 0),
    say: "Bytes that workers send to each other in one step, by plan.",
    draw(parent, s) {
      const list = trafficOf(s).filter((c) => known(c.bytes_moved))
        .sort((a, b) => (a.fits === false) - (b.fits === false) || a.bytes_moved - b.bytes_moved).slice(0, 24);
      const { list: links, known: loads } = cleave.busyLinks(s);
      const pair = e("div", { class: "pair" }), shown = Math.min(links.length, 12);
      const height = 76 + 26 * Math.max(list.length, shown, 4);
      parent.append(pair);
      cleave.chart(pair, {
        id: "traffic", height, label: "Bars: bytes moved in a step by plan",
        config: cleave.bars(list.map((c) => c.name + (c.fits === false ? " (does not fit)" : "")), [{ label: "moved", data: list.map((c) => c.bytes_moved),
          backgroundColor: list.map((c) => cleave.colour(c.name === cleave.figures(s).plan ? "green" : "purple")), maxBarThickness: 20 }],
        { flat: true, title: "bytes in a step, all workers", format: cleave.bytes }),
      });
      if (links.length)
        cleave.chart(pair, {
          id: "links", height, label: loads ? "Bars: share of the step that the busiest links carry something" : "Bars: bytes on the links that carry most",
          note: (links.length > shown ? (loads ? "the busiest " : "the ") + shown + " of " + links.length + " links" : "links of the machine") +
            (loads ? ", by their load" : ", by bytes: their bandwidth is not in this report"),
          config: cleave.bars(links.slice(0, shown).map((l) => l.name), [{ label: loads ? "load" : "bytes",
            data: links.slice(0, shown).map((l) => loads ? l.share : l.bytes),
            backgroundColor: links.slice(0, shown).map((l) => loads ? cleave.loadColour(l.share) : cleave.colour("cyan")), maxBarThickness: 20 }],
          { flat: true, title: loads ? "share of the step that a link is busy" : "bytes on a link", format: loads ? cleave.percent : cleave.bytes,
            more: (i) => [cleave.bytes(links[i].bytes) + " in a step", links[i].bytes_per_s ? "at " + cleave.bytes(links[i].bytes_per_s) + "/s" : null].filter(Boolean) }),
        });
      const unknown = trafficOf(s).filter((c) => !known(c.bytes_moved)).length;
      if (unknown) parent.append(e("p", { class: "hint", text: cleave.plural(unknown, "plan") + " that could not have won " +
        (unknown === 1 ? "was" : "were") + " only estimated: their bytes are not known." }));
      parent.append(moreData(["plan", "moved in a step"], list.map((c) => [c.name, cleave.bytes(c.bytes_moved)])));
    },
  });

  /* ---- layer types ---- */

  sections.push({
    id: "types", title: "Time by layer type",
    has: (s) => s.timelines.length > 0,
    say: "Where the time of a worker goes in a step, on average over the workers.",
    draw(parent, s) {
      const lines = s.timelines.map((t) => [t, cleave.typeTimes(s, t)]);
      const types = [...new Set(lines.flatMap(([, x]) => Object.keys(x)))]
        .sort((a, b) => d3.max(lines, ([, x]) => x[b] || 0) - d3.max(lines, ([, x]) => x[a] || 0));
      cleave.chart(parent, {
        id: "types", height: 80 + 36 * types.length, label: "Bars: time by layer type; the largest is " + types[0],
        config: cleave.bars(types.map((t) => t.replace(/_/g, " ")), lines.map(([t, x]) => ({ label: t.kind, data: types.map((k) => x[k] || 0),
          backgroundColor: cleave.colour(t.kind === "measured" ? "red" : "blue"), maxBarThickness: 16 })),
        { flat: true, title: "time in a step", format: cleave.seconds,
          tell: (i, k) => " (" + cleave.percent((lines[k][1][types[i]] || 0) / lines[k][0].span_s) + " of the step)" }),
      });
      parent.append(moreData(["type", ...lines.map(([t]) => t.kind)],
        types.map((k) => [k, ...lines.map(([, x]) => cleave.seconds(x[k] || 0))])));
    },
  });

  /* ---- scaling ---- */

  function scalingPair(parent, curve, grows) {
    const points = curve.points, counts = points.map((p) => p.workers);
    const at = (key) => points.map((p) => ({ x: p.workers, y: p[key] }));
    const powers = d3.range(0, 13).map((i) => 2 ** i), decades = d3.range(-9, 5).flatMap((i) => [1, 2, 5].map((x) => x * 10 ** i));
    const cross = curve.communication_overtakes;
    const lines = cross ? [{ axis: "x", value: cross, text: "communication overtakes" }] : [];
    /* Where it does not fit, a cross. */
    const lacks = points.some((p) => p.fits === false);
    const marks = lacks ? { pointStyle: points.map((p) => p.fits === false ? "crossRot" : "circle"), pointRadius: points.map((p) => p.fits === false ? 7 : 3), pointBorderWidth: 2 } : {};
    const common = { x: "workers", formatX: (v) => String(+(+v).toPrecision(3)), logX: true, ticksX: counts, logY: true, lines };
    parent.append(e("h3", { text: grows ? "Growing batch: " + curve.batch + " images per worker"
      : "Fixed batch: " + curve.batch + " images in a step" }));
    const pair = e("div", { class: "pair" });
    parent.append(pair);
    cleave.chart(pair, {
      id: grows ? "speedup-growing" : "speedup-fixed", height: 320, label: "Lines: speed against one worker",
      note: lacks ? "crosses: it does not fit into memory" : null,
      config: cleave.lines([
        cleave.line("ideal", points.map((p) => ({ x: p.workers, y: p.workers })), "grey", { borderDash: [4, 4], pointRadius: 0 }),
        cleave.line("predicted", at("speedup"), "blue", marks),
        cleave.line("free communication", at("free_speedup"), "green", { borderDash: [7, 3] }),
        ...(points[0].amdahl_speedup ? [cleave.line("Amdahl's law", at("amdahl_speedup"), "olive", { borderDash: [2, 3] })] : []),
      ], Object.assign({}, common, { y: "speed against one worker", formatY: (v) => String(+(+v).toPrecision(3)), ticksY: powers })),
    });
    cleave.chart(pair, {
      id: grows ? "times-growing" : "times-fixed", height: 320, label: "Lines: computing and communicating time of a step",
      note: cross ? "communication takes longer than computing from about " + +cross.toPrecision(2) + " workers on"
        : "communication never takes longer than computing here",
      config: cleave.lines([
        cleave.line("compute", at("compute_s"), "blue"),
        cleave.line("communicate", points.slice(1).map((p) => ({ x: p.workers, y: p.communicate_s })), "purple"),
        cleave.line("step", at("step_s"), "red", { borderDash: [7, 3], ...marks }),
      ], Object.assign({}, common, { y: "time in a step", formatY: cleave.seconds, ticksY: decades })),
    });
    const times = (x) => known(x) ? x.toFixed(2) : null;
    parent.append(moreData(["workers", "step", "compute", "communicate", "exposed", "speed", "free", "fits"], points.map((p) =>
      [p.workers, cleave.seconds(p.step_s), cleave.seconds(p.compute_s), cleave.seconds(p.communicate_s),
        cleave.seconds(p.exposed_s), times(p.speedup), times(p.free_speedup), p.fits === false ? "no" : p.fits ? "yes" : null])));
  }

  /* The best plan for each number of workers, or each batch. */
  function drawStudy(parent, study) {
    const points = study.points.filter((p) => p.step_s), by = new Set(points.map((p) => p.workers)).size > 1 ? "workers" : "batch";
    if (points.length < 2) return;
    const per = (p, step) => p.batch / step, data = points.filter((p) => p.data_step_s);
    cleave.chart(parent, {
      id: "study", height: 320, label: "Lines: images per second of the best plan by " + by,
      note: study.worth_workers ? "up to " + study.worth_workers + " workers are worth their price" : null,
      config: cleave.lines([
        cleave.line("best plan", points.map((p) => ({ x: p[by], y: p.images_per_s, name: p.best })), "green"),
        ...(data.length > 1 ? [cleave.line("data parallelism", data.map((p) => ({ x: p[by], y: per(p, p.data_step_s) })), "blue", { borderDash: [7, 3] })] : []),
        ...(by === "workers" ? [cleave.line("ideal", points.map((p) => ({ x: p.workers, y: points[0].images_per_s * p.workers / points[0].workers })), "grey", { borderDash: [4, 4], pointRadius: 0 })] : []),
      ], { x: by, y: "images/s", logX: true, logY: true, ticksX: points.map((p) => p[by]), formatX: String, formatY: cleave.count,
        ticksY: d3.range(-2, 8).flatMap((i) => [1, 2, 5].map((x) => x * 10 ** i)) }),
    });
    parent.append(moreData([by, "best plan", "workers used", "step", "images/s", "data parallelism", "worth it"], points.map((p) =>
      [p[by], p.best, p.used, cleave.seconds(p.step_s), Math.round(p.images_per_s), p.data_step_s ? cleave.seconds(p.data_step_s) : null, p.worth ? "yes" : "no"])));
  }

  sections.push({
    id: "scaling", title: "Scaling",
    has: (s) => s.limits || s.study,
    say: "What more workers would bring, and where communication overtakes computing.",
    draw(parent, s) {
      if (s.study) drawStudy(parent, s.study);
      if (!s.limits) return;
      parent.append(e("p", { class: "quiet", text: "Plan " + s.limits.plan + " on " + s.limits.machine + "." }));
      const one = s.limits.fixed.points.length > 1, many = s.limits.growing.points.length > 1;
      if (one) scalingPair(parent, s.limits.fixed, false);
      if (many) scalingPair(parent, s.limits.growing, true);
    },
  });

  /* ---- training ---- */

  /* With --quiet, --json leaves the steps out. */
  const trained = () => cleave.subjects.filter((s) => s.steps && (s.steps.step.length || s.epochs.length));

  /* Runs that lie on each other can still be told apart: later ones are dashed, and on top. */
  function looks(s, several) {
    const i = cleave.subjects.indexOf(s);
    return several && i > 0 ? { borderDash: [10 - 2 * Math.min(i, 3), 3 + i], order: -i } : {};
  }

  /* Mean over a window around each point: single losses of several runs would hide each other. */
  function smooth(values, window) {
    return values.map((_, k) => d3.mean(values.slice(Math.max(0, k - window), k + window + 1)));
  }

  /* Over epochs where steps mean different things: other batches. */
  function lossAxis(runs) {
    const per = runs.map((s) => s.config && s.config.steps_per_epoch);
    return per.every(Boolean) && new Set(per).size > 1 ? { name: "epoch", of: (s, step) => step / s.config.steps_per_epoch, format: (v) => String(+(+v).toFixed(2)) }
      : { name: "step", of: (s, step) => step, format: (v) => String(Math.round(v)) };
  }

  function drawLosses(pair, runs, several) {
    const axis = lossAxis(runs), points = (s, list, y) => list.map((x, k) => ({ x: axis.of(s, x), y: y(k) }));
    const steps = (s) => {
      const values = several ? smooth(s.steps.loss, Math.ceil(s.steps.loss.length / 100)) : s.steps.loss;
      return points(s, s.steps.step, (k) => values[k]);
    };
    const epochs = (s, key) => points(s, s.epochs.map((x) => x.step), (k) => s.epochs[k][key]);
    const tested = (s) => s.epochs.some((x) => x.test_loss !== null);
    const sets = runs.flatMap((s) => several
      ? [cleave.line(s.label, steps(s), cleave.subjects.indexOf(s), Object.assign({ pointRadius: 0 }, looks(s, true))),
        ...(tested(s) ? [cleave.line(s.label + ", test", epochs(s, "test_loss"), cleave.subjects.indexOf(s), { showLine: false, pointStyle: "triangle", pointRadius: 6 })] : [])]
      : [...(s.steps.step.length ? [cleave.line("each step", steps(s), "grey", { borderWidth: 1, pointRadius: 0, order: 1 })] : []),
        ...(s.epochs.length ? [cleave.line("epoch", epochs(s, "train_loss"), "blue", { borderWidth: 3 })] : []),
        ...(tested(s) ? [cleave.line("test", epochs(s, "test_loss"), "orange", { borderDash: [6, 3], pointStyle: "triangle", pointRadius: 5 })] : [])]);
    cleave.chart(pair, { id: "loss", height: 320, label: "Lines: loss over the steps", note: several ? "smoothed; triangles: the test" : null,
      config: cleave.lines(sets, { x: axis.name, y: "loss", formatX: axis.format, formatY: (v) => String(+(+v).toPrecision(4)),
        hides: several ? (text) => text.endsWith(", test") : null }) });
  }

  /* A few steps that something held up would flatten all others. */
  function drawStepTimes(pair, trainings, several) {
    const runs = trainings.filter((s) => s.steps.step.length);
    if (!runs.length) return;
    const all = runs.flatMap((s) => s.steps.step_s).filter((x) => x !== null).sort(d3.ascending);
    const usual = 1.25 * d3.quantile(all, 0.98), above = all.filter((x) => x > usual).length;
    const cut = above && d3.max(all) > 1.6 * usual;
    cleave.chart(pair, { id: "step-times", height: 320, label: "Lines: time of each step",
      note: cut ? cleave.plural(above, "step") + " longer than shown, up to " + cleave.seconds(d3.max(all)) : null,
      config: cleave.lines(runs.flatMap((s) => several
        ? [cleave.line(s.label, s.steps.step.map((x, k) => ({ x, y: s.steps.step_s[k] })), cleave.subjects.indexOf(s), { pointRadius: 0, borderWidth: 1 })]
        : [["step_s", "step", "red"], ["compute_s", "compute", "blue"], ["communicate_s", "communicate", "purple"], ["wait_s", "wait", "olive"]]
          .map(([key, text, colour]) => cleave.line(text, s.steps.step.map((x, k) => ({ x, y: s.steps[key][k] })), colour, { pointRadius: 0, borderWidth: 1.5 }))),
      { x: "step", y: "time", formatX: (v) => String(Math.round(v)), formatY: cleave.seconds, zero: true, most: cut ? usual : undefined }) });
  }

  sections.push({
    id: "training", title: "Training",
    has: () => trained().length > 0,
    say: "Loss and accuracy as they came, and the time of the steps.",
    draw(parent) {
      const runs = trained(), several = runs.length > 1;
      const pair = e("div", { class: "pair triple" });
      parent.append(pair);
      drawLosses(pair, runs, several);
      const tested = runs.filter((s) => s.epochs.some((x) => x.test_accuracy !== null));
      const epochs = [...new Set(tested.flatMap((s) => s.epochs.map((x) => x.epoch)))].sort(d3.ascending);
      if (tested.length)
        cleave.chart(pair, { id: "accuracy", height: 320, label: "Lines: test accuracy by epoch",
          config: cleave.lines(tested.map((s) => cleave.line(several ? s.label : "test accuracy",
            s.epochs.map((x) => ({ x: x.epoch, y: x.test_accuracy })), several ? cleave.subjects.indexOf(s) : "green", looks(s, several))),
          { x: "epoch", y: "test accuracy", formatX: String, formatY: cleave.fine, zero: epochs.length < 2, most: epochs.length < 2 ? 1 : undefined,
            ticksX: epochs.length < 30 ? epochs : undefined }) });
      drawStepTimes(pair, runs, several);
      parent.append(moreData(["run", "epoch", "train loss", "test loss", "test accuracy", "time"], runs.flatMap((s) => s.epochs.map((x) =>
        [s.label, x.epoch, x.train_loss === null ? null : x.train_loss.toFixed(4), x.test_loss === null ? null : x.test_loss.toFixed(4),
          x.test_accuracy === null ? null : cleave.fine(x.test_accuracy), cleave.seconds(x.seconds)]))));
    },
  });

  /* ---- what it was ---- */

  /* Members by their path, "nodes.0.cores"; lists of plain values are one row. */
  function flatten(value, prefix, rows) {
    const plain = (x) => x === null || typeof x !== "object";
    for (const [key, x] of Object.entries(value))
      if (plain(x)) rows.push([prefix + key, x === null ? "–" : String(x)]);
      else if (Array.isArray(x) && x.every(plain)) rows.push([prefix + key, x.join(", ") || "–"]);
      else flatten(x, prefix + key + ".", rows);
    return rows;
  }

  sections.push({
    id: "details", title: "Details",
    has: (s) => s.config || s.versions || s.machine || s.plan,
    say: "Configuration, versions and machine.",
    draw(parent, s) {
      for (const [key, text] of [["config", "Configuration in effect"], ["versions", "Versions, host and date"], ["machine", "Machine"]])
        if (s[key]) parent.append(e("details", {}, e("summary", { text }), cleave.table(["", "value"], flatten(s[key], "", []))));
      if (s.plan)
        parent.append(e("details", {}, e("summary", { text: "Plan" }), cleave.table(["layer", "stage", "cut"],
          Object.entries(s.plan.layers || {}).map(([name, l]) => [name, l.stage,
            Object.entries(l.cut || {}).map(([k, v]) => k + " " + (Array.isArray(v) ? "[" + v.join(", ") + "]" : v)).join(", ") || "–"]))));
    },
  });
})();
