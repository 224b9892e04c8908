/* Charts: thin wrappers around Chart.js that give every chart the same look, a table of its data,
 * and the keyboard. */
"use strict";
(function () {
  const live = [];

  /* ---- what Chart.js does not have ---- */

  /* dataset.errors[i]: half the length of a whisker; dataset.marks[i] and dataset.tries[i]: where a diamond
   * stands. A flat bar that is longer than the axis ends in its value. */
  function diamond(g, x, y, colour) {
    g.beginPath();
    g.moveTo(x, y - 7); g.lineTo(x + 6, y); g.lineTo(x, y + 7); g.lineTo(x - 6, y);
    g.closePath();
    g.fillStyle = cleave.colour(colour);
    g.fill();
    g.strokeStyle = cleave.colour("paper");
    g.stroke();
  }

  function tellCut(g, chart, bar, text) {
    const width = g.measureText(text).width, end = chart.chartArea.right;
    g.fillStyle = cleave.colour("panel");
    g.fillRect(end - width - 12, bar.y - 9, width + 12, 18);
    g.fillStyle = cleave.colour("ink");
    g.textAlign = "right";
    g.textBaseline = "middle";
    g.fillText(text, end - 4, bar.y);
  }

  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const flat = chart.options.indexAxis === "y", g = chart.ctx;
      const axis = flat ? chart.scales.x : chart.scales.y;
      chart.data.datasets.forEach((set, k) => {
        const meta = chart.getDatasetMeta(k);
        if (meta.hidden) return;
        meta.data.forEach((bar, i) => {
          const value = set.data[i], error = set.errors && set.errors[i];
          const beyond = flat && value > axis.max;
          g.save();
          g.font = "12px system-ui, sans-serif";
          g.strokeStyle = g.fillStyle = cleave.colour("ink");
          g.lineWidth = 1.5;
          if (error > 0 && value - error < axis.max) {
            const cut = value + error > axis.max;
            const a = axis.getPixelForValue(Math.max(value - error, axis.min));
            const b = axis.getPixelForValue(Math.min(value + error, axis.max));
            g.beginPath();
            for (const [from, to, across] of [[a, b, 0], [a, a, 4], ...(cut ? [] : [[b, b, 4]])]) {
              g.moveTo(flat ? from : bar.x - across, flat ? bar.y - across : from);
              g.lineTo(flat ? to : bar.x + across, flat ? bar.y + across : to);
            }
            g.stroke();
          }
          if (beyond) tellCut(g, chart, bar, set.format(value) + " ▸");
          for (const [list, colour] of [[set.tries, "olive"], [set.marks, "red"]]) {
            const mark = list && list[i], at = mark > 0 && mark <= axis.max ? axis.getPixelForValue(mark) : NaN;
            if (at === at) diamond(g, flat ? at : bar.x, flat ? bar.y : at, colour);
          }
          g.restore();
        });
      });
    },
  };

  /* options.plugins.rules.lines: [{axis, value, text, colour}], each straight through the chart. */
  const rules = {
    id: "rules",
    afterDatasetsDraw(chart, _, options) {
      const area = chart.chartArea, g = chart.ctx;
      for (const line of options.lines || []) {
        const at = chart.scales[line.axis].getPixelForValue(line.value);
        const level = line.axis === "y";
        if (level ? at < area.top - 1 || at > area.bottom : at < area.left || at > area.right + 1) continue;
        g.save();
        g.strokeStyle = g.fillStyle = cleave.colour(line.colour || "red");
        g.setLineDash([6, 4]);
        g.lineWidth = 2;
        g.beginPath();
        g.moveTo(level ? area.left : at, level ? at : area.top);
        g.lineTo(level ? area.right : at, level ? at : area.bottom);
        g.stroke();
        g.font = "12px system-ui, sans-serif";
        const width = g.measureText(line.text).width;
        const x = level ? area.right - width - 4 : at + width + 8 > area.right ? Math.max(area.left, at - width - 5) : at + 5;
        const y = level ? (at < area.top + 18 ? at + 14 : at - 5) : area.top + 13;
        g.fillStyle = cleave.colour("panel");
        g.globalAlpha = 0.85; /* lines behind it stay visible, and it readable */
        g.fillRect(x - 2, y - 11, width + 4, 15);
        g.globalAlpha = 1;
        g.fillStyle = cleave.colour(line.colour || "red");
        g.fillText(line.text, x, y);
        g.restore();
      }
    },
  };
  Chart.register(whiskers, rules);

  function setDefaults() {
    const d = Chart.defaults;
    d.animation = false;
    d.responsive = true;
    d.maintainAspectRatio = false;
    d.color = cleave.colour("ink");
    d.borderColor = cleave.colour("grid");
    d.font.family = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    d.plugins.legend.labels.boxWidth = 14;
    d.plugins.legend.position = "bottom";
    d.plugins.tooltip.backgroundColor = cleave.colour("ink");
    d.plugins.tooltip.titleColor = d.plugins.tooltip.bodyColor = cleave.colour("paper");
    d.elements.point.radius = 3;
    d.elements.line.borderWidth = 2;
  }
  cleave.setChartDefaults = setDefaults;

  /* ---- keyboard: arrows go through the values, Escape leaves ---- */

  function addKeys(canvas, chart, pick) {
    let at = -1;
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const data = (k) => chart.data.datasets[k].data;
      const sets = chart.data.datasets.map((_, k) => k).filter((k) => chart.isDatasetVisible(k));
      /* Points of lines stand together where their x is the same, bars by their number. */
      const xs = chart.config.type === "line" ? [...new Set(sets.flatMap((k) => data(k).map((p) => p.x)))].sort(d3.ascending) : null;
      const n = xs ? xs.length : Math.max(...sets.map((k) => data(k).length));
      if (event.key === "Enter" && pick && at >= 0) return pick(at);
      if (event.key === "Escape") at = -1;
      else if (move && n > 0) at = at < 0 && move < 0 ? n - 1 : (at + move + n) % n;
      else return;
      event.preventDefault();
      const active = at < 0 ? [] : sets.map((datasetIndex) => ({ datasetIndex,
        index: xs ? data(datasetIndex).findIndex((p) => p.x === xs[at]) : at }))
        .filter((x) => data(x.datasetIndex)[x.index] !== undefined);
      chart.setActiveElements(active);
      chart.tooltip.setActiveElements(active, { x: 0, y: 0 });
      chart.update("none");
    });
  }

  /* A figure with a chart in it: {label, height, config, note, pick}; pick(i) is called for the bar that
   * was clicked. Returns the figure. */
  cleave.chart = function (parent, about) {
    const canvas = cleave.element("canvas", { tabindex: "0", role: "img", "aria-label": about.label });
    const plot = cleave.element("div", { class: "plot", style: "height:" + (about.height || 300) + "px" }, canvas);
    const figure = cleave.element("figure", { "data-chart": about.id }, plot,
      about.note && cleave.element("figcaption", { text: about.note }));
    parent.append(figure);
    if (about.pick) {
      about.config.options.onClick = (event, active) => { if (active.length) about.pick(active[0].index); };
      canvas.classList.add("picks");
    }
    const chart = new Chart(canvas, about.config);
    figure.chart = chart;
    live.push(chart);
    addKeys(canvas, chart, about.pick);
    cleave.addExports(figure);
    return figure;
  };

  /* All, or those inside an element. */
  cleave.dropCharts = function (within) {
    for (const chart of live.splice(0))
      if (!within || within.contains(chart.canvas)) chart.destroy(); else live.push(chart);
  };

  /* ---- parts of configurations ---- */

  cleave.axis = (title, format, more) => Object.assign({
    title: { display: !!title, text: title },
    ticks: { maxRotation: 0, includeBounds: !(more && more.max), maxTicksLimit: innerWidth < 600 ? 5 : 8, callback(value) { return format ? format(value) : this.getLabelForValue(value); } },
    grid: { color: cleave.colour("grid") },
  }, more || {});

  /* A remark in brackets, such as that a plan does not fit, is never cut off: it stands below. */
  function label(text, n) {
    const cut = (x) => x.length > n ? x.slice(0, n - 1) + "…" : x, found = text.length > n && /^(.*) \((.*)\)$/.exec(text);
    return found ? [cut(found[1]), found[2]] : cut(text);
  }

  cleave.bars = (labels, sets, options) => ({
    type: "bar",
    data: { labels, datasets: sets.map((set) => Object.assign(set, { format: options.format })) },
    options: {
      indexAxis: options.flat ? "y" : "x",
      layout: { padding: { right: options.flat ? 10 : 0 } },
      interaction: { mode: "index", intersect: false, axis: options.flat ? "y" : "x" },
      scales: {
        [options.flat ? "x" : "y"]: cleave.axis(options.title, options.format,
          Object.assign({ beginAtZero: true, stacked: !!options.stacked, suggestedMax: options.most, max: options.cut },
            options.few ? { ticks: { maxRotation: 0, maxTicksLimit: 4, callback: (value) => options.format(value) } } : {})),
        [options.flat ? "y" : "x"]: cleave.axis(options.across, null,
          { stacked: !!options.stacked, grid: { display: false },
            ticks: { autoSkip: !options.flat, maxRotation: 60, font: { size: 12 },
              callback(value) { return label(this.getLabelForValue(value), options.flat && innerWidth < 600 ? 16 : 40); } } }),
      },
      plugins: {
        legend: { display: sets.length > 1 },
        rules: { lines: options.lines || [] },
        tooltip: { callbacks: {
          label: (item) => (item.dataset.label ? item.dataset.label + ": " : "") +
            options.format(item.raw) + (options.tell ? options.tell(item.dataIndex, item.datasetIndex) : ""),
          afterBody: options.more ? (items) => options.more(items[0].dataIndex) : undefined,
        } },
      },
    },
  });

  /* Points {x, y}; axes may be logarithmic. */
  cleave.lines = (sets, options) => ({
    type: "line",
    data: { datasets: sets },
    options: {
      parsing: false,
      normalized: true,
      interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: {
        x: cleave.axis(options.x, options.formatX, Object.assign({ type: options.logX ? "logarithmic" : "linear" },
          options.ticksX ? { afterBuildTicks(axis) { axis.ticks = options.ticksX.map((value) => ({ value })); } } : {})),
        y: cleave.axis(options.y, options.formatY, Object.assign({ type: options.logY ? "logarithmic" : "linear" },
          options.zero ? { beginAtZero: true } : {}, options.most ? { max: options.most } : {},
          options.ticksY ? { afterBuildTicks(axis) { axis.ticks = options.ticksY.filter((t) => t >= axis.min && t <= axis.max).map((value) => ({ value })); } } : {})),
      },
      plugins: {
        legend: { display: sets.length > 1, labels: { usePointStyle: true, pointStyle: "rectRounded",
          sort: (a, b) => a.datasetIndex - b.datasetIndex,
          filter: (item) => !(options.hides && options.hides(item.text)) } },
        rules: { lines: options.lines || [] },
        decimation: { enabled: true, algorithm: "lttb", samples: 800 },
        tooltip: { callbacks: {
          title: (items) => items.length ? options.x + " " + (options.formatX || String)(items[0].raw.x) : "",
          label: (item) => item.dataset.label + ": " + (options.formatY || String)(item.raw.y) + (item.raw.name ? " (" + item.raw.name + ")" : ""),
        } },
      },
    },
  });

  cleave.line = (label, points, i, more) => Object.assign({
    label, data: points.filter((p) => p.y !== null && p.y !== undefined && isFinite(p.y)),
    borderColor: typeof i === "string" ? cleave.colour(i) : cleave.nth(i),
    backgroundColor: typeof i === "string" ? cleave.colour(i) : cleave.nth(i),
    pointRadius: points.length > 60 ? 0 : 3, tension: 0,
    segment: {}, /* drawn line by line, not by a Path2D, which export.js could not read */
  }, more || {});
})();
