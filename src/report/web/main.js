/* Puts the page together: the head at once, then the sections one after the other, each in a turn of
 * its own so that the page can be read and moved while the rest is drawn. */
"use strict";
(function () {
  const e = cleave.element, by = (id) => document.getElementById(id);
  const order = ["candidates", "compare", "network", "timeline", "memory", "traffic", "machine", "types", "scaling", "training", "details"];
  const sources = { candidates: "candidates ('cleave plan MODEL --json')", network: "the network (a plan or a run)",
    timeline: "a timeline (--trace, or a run)", machine: "the machine ('cleave predict --json')", memory: "memory ('cleave predict --json')", traffic: "traffic (the same, or 'cleave plan --json')",
    scaling: "scaling ('cleave bench limits MODEL --json', 'cleave plan MODEL --workers 1..64 --json')", training: "a training (a run)" };

  function tiles(f) {
    const list = [];
    const add = (value, text) => list.push(e("li", {}, e("b", { text: value }), e("span", { text })));
    if (f.measured_s) add(cleave.seconds(f.measured_s), "a step, measured");
    if (f.fits === false) add("does not fit", "into the memory that there is");
    if (f.predicted_s) add(cleave.seconds(f.predicted_s), "a step, predicted" + (f.error_s ? " ± " + cleave.seconds(f.error_s) : ""));
    if (f.images_per_s) add(Math.round(f.images_per_s).toLocaleString("en"), "images/s");
    if (f.accuracy !== undefined) add(cleave.accuracy(f.accuracy), "test accuracy");
    if (f.memory_bytes) add(cleave.bytes(f.memory_bytes), "memory of the largest worker");
    if (f.bytes_moved !== undefined && f.bytes_moved !== null) add(cleave.bytes(f.bytes_moved), "moved in a step");
    return list;
  }

  function head() {
    const s = cleave.subject(), f = cleave.figures(s), found = cleave.findings(s);
    const title = [f.model, f.plan, f.workers ? cleave.plural(f.workers, "worker") : null].filter(Boolean).join(" · ");
    document.title = "Cleave: " + (title || "report");
    by("title").textContent = title || "Cleave report";
    by("subtitle").textContent = [s.name, f.data, f.batch ? "batch " + f.batch : null, f.machine && f.machine !== "local" ? "on " + f.machine : null]
      .filter(Boolean).join(" · ");
    by("tiles").replaceChildren(...tiles(f));
    by("findings").hidden = !found.sentences.length;
    by("findings").replaceChildren(...found.sentences.map((text) => e("p", { text })),
      found.tries.length ? e("p", { text: "What to try:" }) : "", found.tries.length ? e("ul", {}, ...found.tries.map((text) => e("li", { text }))) : "");
  }

  function sectionsOf(s) {
    const has = (x) => { try { return x.has(s); } catch (error) { return true; } }; /* drawing it says what is wrong */
    return order.map((id) => cleave.sections.find((x) => x.id === id)).filter((x) => x && has(x));
  }

  /* The faults in the files of this subject, in words, on top of the page. */
  function sayWrong(s) {
    by("wrong").hidden = !s.wrong.length;
    by("wrong").replaceChildren(...s.wrong.map((text) => e("p", { text })));
  }

  /* An unforeseen failure is shown where it happened, and the rest of the page is drawn. */
  function guarded(parent, act) {
    try { act(); } catch (error) {
      parent.hidden = false;
      parent.append(e("p", { class: "wrong", text: "This part cannot be drawn from the data of this report: " + error.message }));
    }
  }

  cleave.showSubject = function (i, after) {
    cleave.current = i;
    by("subject").value = i;
    cleave.draw(after);
  };

  /* ---- another plan in the place of the chosen one ---- */

  const replaced = ["network", "timeline", "types"];
  let frames = [], list = [];

  function drawSection(i) {
    const x = list[i], frame = frames[i], s = cleave.subject(), other = replaced.includes(x.id) ? s.shown : null;
    frame.replaceChildren(e("h2", { id: x.id + "-title", text: x.title }), e("p", { class: "quiet", text: x.say }));
    if (other) frame.append(e("p", { class: "other" }, "Shown is the candidate ", e("b", { text: other.plan.name || "" }), ". ",
      e("button", { type: "button", text: "Back to " + (cleave.figures(s).plan || "the chosen plan"), onclick: () => cleave.showPlan(null) })));
    if (x.has(other || s)) guarded(frame, () => x.draw(frame, other || s));
    else frame.append(e("p", { class: "quiet", text: "This page does not have it." }));
  }

  /* Network and timeline of a candidate that the search kept; null: those of the subject itself. */
  cleave.showPlan = function (c) {
    const s = cleave.subject(), one = { name: s.name, label: s.label, network: s.network, config: s.config, timelines: [] };
    s.shown = c ? Object.assign(one, { plan: { ...c.plan, name: c.name }, timelines: c.timeline ? [c.timeline] : [],
      search: { ...s.search, best: c.name, candidates: [c] } }) : null;
    cleave.forgetChosen();
    list.forEach((x, i) => {
      if (!replaced.includes(x.id)) return;
      cleave.dropCharts(frames[i]);
      drawSection(i);
    });
  };

  let turn = 0;
  cleave.draw = function (after) {
    const mine = ++turn, s = cleave.subject();
    cleave.dropCharts();
    cleave.forgetChosen();
    cleave.setChartDefaults();
    list = sectionsOf(s);
    guarded(by("findings"), () => head());
    sayWrong(s);
    frames = list.map((x) => e("section", { id: x.id, "aria-labelledby": x.id + "-title" }, e("h2", { id: x.id + "-title", text: x.title })));
    by("main").replaceChildren(...frames);
    by("contents").replaceChildren();
    guarded(by("contents"), () => cleave.addSearch(by("contents"), s));
    by("contents").append(...list.map((x) => e("a", { href: "#" + x.id, text: x.title })));
    const absent = Object.keys(sources).filter((id) => !list.some((x) => x.id === id));
    by("absent").textContent = absent.length ? "Not in this report: " + absent.map((id) => sources[id]).join("; ") + "." : "";
    cleave.ready = false;
    const step = (i) => {
      if (mine !== turn) return;
      if (i === list.length) { cleave.ready = true; if (after) after(); return; }
      drawSection(i);
      setTimeout(step, 0, i + 1);
    };
    /* Not before the head is on the screen. A page in the background has no frames until it is looked
     * at: there a timer begins, and the frame that comes later finds everything begun. */
    let begun = false;
    const begin = () => { if (!begun) setTimeout(step, 0, 0); begun = true; };
    requestAnimationFrame(begin);
    if (document.hidden) setTimeout(begin, 50);
  };

  function addSubjects() {
    if (cleave.subjects.length < 2) return;
    by("subject-label").hidden = false;
    by("subject").append(...cleave.subjects.map((s, i) => e("option", { value: i, text: s.label })));
    by("subject").addEventListener("change", () => cleave.showSubject(+by("subject").value));
  }

  function addTheme() {
    const themes = ["auto", "light", "dark"];
    let at = 0;
    by("theme").addEventListener("click", () => {
      at = (at + 1) % 3;
      if (at) document.documentElement.dataset.theme = themes[at]; else delete document.documentElement.dataset.theme;
      by("theme").textContent = "Theme: " + themes[at];
      cleave.draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cleave.draw());
  }

  by("colophon").textContent = "Written by cleave " + cleave.page.version + " on " + cleave.page.written +
    ". Drawn with Chart.js, D3 and dagre, which are in this file under their own licences (see its source).";
  addSubjects();
  addTheme();
  cleave.draw();
})();
