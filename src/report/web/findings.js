/* The limits of the run, and what to try: in plain sentences, from the same figures as the charts. */
"use strict";
(function () {
  /* Shares of the step of an average worker: measured where there is a run, else predicted. */
  function shares(s) {
    const f = cleave.figures(s);
    if (f.measured_s && f.compute_s !== undefined)
      return { how: "measured", step: f.measured_s, compute: f.compute_s, wait: f.wait_s, communicate: f.communicate_s };
    const p = s.prediction;
    if (!p || !p.workers || !p.workers.length) return null;
    /* As shares of the one predicted step that the page names. */
    const mean = (key) => d3.mean(p.workers, (w) => w[key]) * f.predicted_s / p.step_s;
    return { how: "predicted", step: f.predicted_s, compute: mean("compute_s"), wait: mean("wait_s"), communicate: mean("communicate_s") };
  }

  /* How much more than the mean the busiest worker computes: of the measured step where there is one. */
  function imbalance(s) {
    const t = cleave.timeline(s, "measured");
    if (t && t.workers > 1 && !(t.data && t.data.length > 4e5)) {
      const slices = cleave.unpackTimeline(t);
      const busy = d3.range(t.workers).map((w) => {
        let sum = 0;
        for (let i = slices.first[2 * w]; i < slices.first[2 * w + 1]; i++)
          if (slices.category[i] === 0) sum += slices.end[i] - slices.begin[i];
        return sum;
      });
      const most = d3.max(busy), mean = d3.mean(busy);
      return mean > 0 ? { ratio: most / mean, worker: busy.indexOf(most) } : null;
    }
    const list = s.prediction && s.prediction.workers;
    if (!list || list.length < 2) return null;
    const mean = d3.mean(list, (w) => w.compute_s), most = d3.max(list, (w) => w.compute_s);
    return mean > 0 ? { ratio: most / mean, worker: list.findIndex((w) => w.compute_s === most) } : null;
  }

  function largestType(s) {
    const t = cleave.timeline(s, "measured") || cleave.timeline(s, "predicted");
    /* Unpacking a large timeline here would hold up the first picture. */
    if (!t || (t.data && t.data.length > 4e5)) return null;
    const types = Object.entries(cleave.typeTimes(s, t)).filter(([k]) => k !== "waiting").sort((a, b) => b[1] - a[1]);
    return types.length ? { type: types[0][0].replace(/_/g, " "), share: types[0][1] / d3.sum(types, (x) => x[1]) } : null;
  }

  /* How many workers are worth their price, where the page has a study of this very network and batch; 0: it
   * is not known. The study of the best plans comes before that of one plan. */
  function worthWorkers(s, f) {
    const alike = (x) => !x.model || x.model === f.model;
    const batchOf = (study) => study.points.length && study.points[0].batch, l = s.limits, study = s.study;
    if (study && study.worth_workers && alike(study) && (!batchOf(study) || batchOf(study) === f.batch)) return study.worth_workers;
    return l && l.fixed.worth_workers && alike(l) && (!l.fixed.batch || l.fixed.batch === f.batch) ? l.fixed.worth_workers : 0;
  }

  const are = (n) => cleave.plural(n, "worker") + (n === 1 ? " is" : " are");

  function tryComputing(s, f) {
    const worth = worthWorkers(s, f), most = s.search && s.search.workers;
    if (worth > (f.workers || 1)) return `more workers: up to ${worth} are worth the price, see Scaling`;
    if (worth) return `a larger batch: with ${f.batch} images in a step, more than ${are(worth)} not worth the price`;
    if (most > f.workers) return `a larger batch: with this one, ${cleave.plural(f.workers, "worker")} of ${most} ${f.workers === 1 ? "is" : "are"} the fastest`;
    if (f.workers > 1) return "more workers, as long as the batch gives each enough to do: 'cleave bench limits' says how many are worth the price";
    return "more workers: 'cleave plan MODEL --workers N' says which plan";
  }

  /* Nothing against the study of the page, nor against the search, which looked at plans of fewer workers. */
  function tryFewer(s, f, how) {
    const worth = worthWorkers(s, f);
    if (worth) return worth < f.workers ? [`fewer workers: up to ${are(worth)} worth the price, see Scaling`] : [];
    return s.search ? [] : [how];
  }

  function sayLimit(s, say, tries) {
    const x = shares(s), f = cleave.figures(s), even = imbalance(s);
    if (!x) return;
    const compute = x.compute / x.step, wait = x.wait / x.step, rest = 1 - compute - wait;
    const parts = `Of a step of ${cleave.seconds(x.step)} (${x.how}) a worker computes ${cleave.percent(compute)} and stands still ${cleave.percent(wait)}` +
      (rest > 0.1 ? `; ${cleave.percent(rest)} pass between its instructions.` : ".");
    const many = f.workers > 1, pipeline = s.plan && s.plan.stages && s.plan.stages.length > 1;
    /* A search has tried several numbers of micro-batches. */
    const micro = pipeline && !s.search ? ["more micro-batches (--micro-batches), which shorten the bubbles of the pipeline"] : [];
    if (x.how === "measured" && rest > 0.3 && rest > wait) {
      say(parts + " Something else probably had the cores of this host.");
      tries.push("to train again while nothing else runs on this host");
    } else if (many && wait > 0.1 && even && even.ratio > 1.15) {
      say(parts + ` The work is uneven: worker ${even.worker} computes ${even.ratio.toFixed(2)} times the mean, and the others wait for it.`);
      tries.push("other stages or uneven parts: 'cleave plan make', edit the sizes, 'cleave train --plan FILE'", ...micro);
    } else if (many && wait > 0.2 && pipeline && x.communicate < x.compute) {
      say(parts + " The bubbles of the pipeline limit this run.");
      tries.push(...(micro.length ? micro : ["a larger batch, of which more micro-batches can be made"]));
      if (s.plan.schedule === "gpipe" && !s.search) tries.push("--plan 1f1b, which keeps fewer outputs than gpipe, and so has memory for more micro-batches");
    } else if (many && wait > 0.2 && x.communicate > 0.8 * x.wait) {
      say(parts + ` Communication limits this run: it is under way for ${cleave.percent(x.communicate / x.step)} of the step, and not all of it hides behind computing.`);
      tries.push("a larger batch, so that more is computed for each byte moved");
      if (!s.search) tries.push("a plan that moves less: 'cleave plan MODEL' compares them");
      tries.push(...tryFewer(s, f, "fewer workers: 'cleave bench limits' says how many are worth it"));
    } else if (wait > 0.2) {
      say(parts + (many ? " Waiting for other workers limits this run." : " Waiting for data limits this run."));
      tries.push(...(many ? ["a larger batch", ...tryFewer(s, f, "fewer workers with more threads each")] : ["'cleave pack', which makes one fast file of many images"]));
    } else {
      const largest = largestType(s);
      say(parts + " Computing limits this run" + (largest ? `: ${cleave.percent(largest.share)} of it is ${largest.type}.` : "."));
      tries.push(tryComputing(s, f));
    }
  }

  /* The result of a trial on this host, which decides before the prediction. */
  function sayTrial(q, best, say) {
    const others = q.candidates.filter((c) => c !== best && c.tried_s > 0).sort((a, b) => a.tried_s - b.tried_s);
    if (!(best.tried_s > 0) || !others.length) return;
    const next = others[0];
    say(`${cleave.plural(others.length + 1, "plan")} were run one against the other before the choice: ${best.name} took ${cleave.seconds(best.tried_s)} a step, ` +
      `${next.name} ${cleave.seconds(next.tried_s)}` + (next.tried_s < best.tried_s ? ", which is too little to be told apart." : "."));
  }

  function saySearch(s, say) {
    const q = s.search;
    if (!q || !q.candidates.length) return;
    const best = q.candidates.find((c) => c.name === q.best);
    /* What the chart shows below it: any plan that fits and does not train with older weights. */
    const others = q.candidates.filter((c) => c !== best && c.fits !== false && !c.stale && c.step_s).sort((a, b) => a.step_s - b.step_s);
    if (!best) { say("None of the " + q.candidates.length + " plans that were looked at fits into memory."); return; }
    const serial = q.candidates.find((c) => c.name === "serial"), next = others[0];
    const ratio = serial && serial !== best && serial.step_s / best.step_s, tried = next && best.tried_s > 0 && next.tried_s > 0;
    let text = `Of ${cleave.plural(q.candidates.length, "plan")}, ${best.name} was chosen: ${cleave.seconds(best.step_s)} a step`;
    if (ratio) text += `, ${ratio < 100 ? ratio.toFixed(2) : Math.round(ratio)} times as fast as one worker`;
    text += ratio > 2 * best.workers ? ` (more than ${cleave.plural(best.workers, "worker")} can explain: the host was busy while the costs of one of the two were measured).` : ".";
    if (next) {
      const apart = next.step_s - best.step_s, unsure = Math.max(best.error_s || 0, next.error_s || 0);
      text += ` Next is ${next.name}, ` + (Math.abs(apart) < 0.0005 * best.step_s ? "as fast in the prediction" : apart >= 0 ? `${cleave.percent(apart / best.step_s)} slower`
        : `${cleave.percent(-apart / best.step_s)} faster in the prediction, but not ` + (tried ? "when both were run" : "by enough to be told apart")) +
        (next.clocked === false ? " by an estimate alone." : apart >= 0 && apart < unsure && !tried ? ", which is within the error: try both." : ".");
    }
    /* Variants of one family differ by little; the next of another kind says more. */
    const other = next && best.family && next.family === best.family && others.find((c) => c.family !== best.family);
    if (other && other.step_s >= best.step_s)
      text += ` The best of another kind is ${other.name}, ${cleave.percent(other.step_s / best.step_s - 1)} slower${other.clocked === false ? " by an estimate alone" : ""}.`;
    const faster = (test) => q.candidates.filter((c) => test(c) && c.step_s && c.step_s < (next || best).step_s).length;
    const large = faster((c) => c.fits === false && c.step_s < best.step_s), stale = faster((c) => c.stale && c.fits !== false);
    if (large) text += ` ${cleave.plural(large, "plan")} would be faster and ${large === 1 ? "does" : "do"} not fit into memory.`;
    if (stale) text += ` ${cleave.plural(stale, "plan")} would be faster and ${stale === 1 ? "trains" : "train"} with older weights.`;
    say(text);
    sayTrial(q, best, say);
  }

  function sayPrediction(s, say, tries) {
    const f = cleave.figures(s), p = s.prediction;
    if (!f.measured_s || !f.predicted_s) return;
    const off = f.predicted_s / f.measured_s - 1;
    const guessed = p && p.costs ? 1 - p.costs.measured : 0;
    say(`The step was predicted to take ${cleave.seconds(f.predicted_s)} and took ${cleave.seconds(f.measured_s)}: the prediction is ` +
      (Math.abs(off) < 0.02 ? "right to 2 %." : `${cleave.percent(Math.abs(off))} too ${off > 0 ? "long" : "short"}.`) +
      (guessed > 0.3 ? ` ${cleave.percent(guessed)} of the costs behind it were not measured here.` : ""));
    if (guessed > 0.3) tries.push("'cleave predict' once, which measures the layers on this host, then train again");
    else if (Math.abs(off) > 0.5)
      tries.push("to measure the layers anew, if the machine was busy then: 'cleave profile forget --all', 'cleave predict', and train again");
  }

  function sayMemory(s, say, tries) {
    const p = s.prediction;
    if (!p) return;
    const limit = p.limit_bytes > 0 ? p.limit_bytes / Math.max(1, p.limit_workers || 1) : 0;
    if (p.fits === false) {
      say(`It does not fit: the largest worker needs ${cleave.bytes(p.memory_bytes)}` + (limit ? `, there are ${cleave.bytes(limit)}.` : "."));
      for (const a of p.advice || []) tries.push(`${a.change}, with which it needs ${cleave.bytes(a.memory_bytes)}`);
    } else if (limit && p.memory_bytes > 0.85 * limit)
      say(`Memory is nearly full: ${cleave.bytes(p.memory_bytes)} of ${cleave.bytes(limit)}.`);
  }

  function sayScaling(s, say) {
    const l = s.limits, f = cleave.figures(s), worth = worthWorkers(s, f);
    if (s.study && worth && s.study.worth_workers === worth) say(`By the study of the best plans, ${worth === 1 ? "1 worker is" : `up to ${worth} workers are`} worth the price.`);
    if (!l || l.fixed.points.length < 2) return;
    const cross = l.fixed.communication_overtakes;
    const other = l.model && l.model !== f.model ? `${l.model}: with` : "With", on = l.machine && f.machine && l.machine !== f.machine ? " on " + l.machine : "";
    say((cross ? `${other} the batch fixed at ${l.fixed.batch}${on}, communication takes longer than computing from about ${+cross.toPrecision(2)} workers on`
      : `${other} the batch fixed at ${l.fixed.batch}${on}, communication stays below computing up to ${l.fixed.points[l.fixed.points.length - 1].workers} workers`) +
      (l.fixed.worth_workers && !(s.study && worth) ? `; ${l.fixed.worth_workers === 1 ? "1 worker is" : `up to ${l.fixed.worth_workers} are`} worth the price.` : "."));
  }

  /* {sentences, tries} of a subject. */
  cleave.findings = function (s) {
    const sentences = [], tries = [], say = (x) => sentences.push(x);
    sayMemory(s, say, tries);
    saySearch(s, say);
    sayLimit(s, say, tries);
    sayPrediction(s, say, tries);
    sayScaling(s, say);
    if (!sentences.length && s.plan)
      sentences.push(`The plan ${s.plan.name} splits ${cleave.madeFor(s, "model") || "the network"} over ${cleave.plural(s.plan.workers, "worker")}. ` +
        "What it would cost is not in this report.");
    if (!s.prediction && !s.done && s.plan)
      tries.push("'cleave predict FILE --trace t.json --json > p.json', then 'cleave report FILE p.json t.json'");
    return { sentences, tries };
  };
})();
