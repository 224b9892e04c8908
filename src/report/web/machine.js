/* The machine as a picture: nodes with their devices, and every link in the colour of its load. Nodes
 * that are equal in all they carry are drawn once, with their number. */
"use strict";
(function () {
  const e = cleave.element;
  const deviceWidth = 30, deviceHeight = 34, perRow = 8, gap = 8, busHeight = 22, drop = 58;

  cleave.loadColour = (share) => share === undefined || share === null ? cleave.colour("pale")
    : d3.interpolateRgbBasis([cleave.colour("green"), cleave.colour("olive"), cleave.colour("orange"), cleave.colour("red")])(Math.min(1, Math.max(0, share)));

  const nodesOf = (s) => (s.prediction && s.prediction.nodes) || (s.prediction && s.machine && s.machine.nodes) || null;

  /* Of the machine: [{name, devices: [{number, out, in, worker}], out, in, more}], equal neighbours together;
   * `more` names those that look like it. Up to `most` nodes are drawn each. */
  function gather(s, most) {
    const links = new Map(cleave.busyLinks(s).list.map((l) => [l.name, l])), workers = (s.prediction && s.prediction.workers) || [];
    const port = (name) => name ? links.get(name) || { name, bytes: 0, share: 0 } : null;
    let number = 0;
    const nodes = nodesOf(s).map((n) => ({ name: n.name || "", out: port(n.out), in: port(n.in),
      devices: n.devices.map((d) => ({ kind: d.kind, number: number++, out: port(d.out), in: port(d.in) })), more: [] }));
    for (const n of nodes) for (const d of n.devices) d.worker = workers[d.number];
    const about = (l) => l ? Math.round(100 * (l.share || 0)) + "/" + (l.bytes ? Math.round(Math.log2(l.bytes) * 20) : 0) : "-";
    const key = (n) => JSON.stringify([about(n.out), about(n.in), n.devices.map((d) => [d.kind, about(d.out), about(d.in), d.worker ? Math.round(100 * d.worker.compute_s / s.prediction.step_s) : null])]);
    const shown = [];
    for (const n of nodes) {
      const last = shown[shown.length - 1];
      if (nodes.length > most && last && last.key === key(n)) last.more.push(n.name);
      else shown.push(Object.assign(n, { key: key(n) }));
    }
    return shown;
  }

  const told = (l) => l.name + ": " + (l.bytes ? cleave.bytes(l.bytes) + " in a step" + (l.share !== undefined ? ", busy " + cleave.percent(l.share) + " of it" : "") +
    (l.bytes_per_s ? "\nit carries " + cleave.bytes(l.bytes_per_s) + "/s" : "") : "nothing in a step");

  function tips(selection, text) {
    selection.attr("tabindex", 0).attr("role", "img").attr("aria-label", text.replace(/\n/g, "; "))
      .on("mousemove", () => cleave.showTip(text, d3.event.clientX, d3.event.clientY)).on("mouseleave", cleave.hideTip)
      .on("focus", function () { const b = this.getBoundingClientRect(); cleave.showTip(text, b.left, b.bottom); }).on("blur", cleave.hideTip);
  }

  /* From y0 to y1; the busier, the thicker. */
  function drawLink(g, l, x, y0, y1) {
    if (!l) return;
    const line = g.append("g").attr("class", "link").attr("data-link", l.name);
    line.append("path").attr("d", `M${x},${y0}V${y1}`).attr("stroke", "transparent").attr("stroke-width", 9).attr("fill", "none");
    line.append("path").attr("d", `M${x},${y0}V${y1}`).attr("fill", "none").attr("stroke", cleave.loadColour(l.share)).attr("stroke-width", 2.5 + 4 * Math.min(1, l.share || 0));
    line.append("path").attr("d", `M${x},${y1}l-5,${y0 > y1 ? 8 : -8}h10z`).attr("fill", cleave.loadColour(l.share));
    tips(line, told(l));
  }

  function drawNode(g, s, n, x, y, size) {
    const rows = Math.ceil(n.devices.length / perRow), columns = Math.min(perRow, n.devices.length);
    g.append("rect").attr("class", "box").attr("x", x).attr("y", y).attr("width", size.width).attr("height", size.height).attr("rx", 8);
    const kinds = [...new Set(n.devices.map((d) => d.kind))], many = n.more.length + 1;
    const own = n.devices.length + " " + (kinds.length === 1 ? kinds[0] || "" : "devices");
    const titles = many > 1 ? [`${n.name} … ${n.more[many - 2]}: ${many} alike,`, "each " + own] : [n.name + ": " + own];
    titles.forEach((title, i) => g.append("text").attr("x", x + 10).attr("y", y + size.height - 9 - 15 * (titles.length - 1 - i)).text(title));
    /* One bus: a rail for each row of devices, joined at the left. */
    const railAt = (row) => y + 12 + row * (deviceHeight + 42);
    for (let row = 0; row < rows; row++)
      g.append("rect").attr("class", "bus").attr("x", x + 8).attr("y", railAt(row)).attr("width", size.width - 16).attr("height", 8).attr("rx", 4);
    if (rows > 1) g.append("rect").attr("class", "bus").attr("x", x + 8).attr("y", railAt(0)).attr("width", 6).attr("height", railAt(rows - 1) - railAt(0) + 8);
    for (const [i, d] of n.devices.entries()) {
      const row = Math.floor(i / perRow), left = x + (size.width - columns * (deviceWidth + gap) + gap) / 2 + (i % perRow) * (deviceWidth + gap);
      const from = railAt(row) + 8, top = from + 30;
      drawLink(g, d.out, left + deviceWidth / 2 - 6, top, from);
      drawLink(g, d.in, left + deviceWidth / 2 + 6, from, top);
      const share = d.worker ? d.worker.compute_s / s.prediction.step_s : 0;
      const box = g.append("g");
      box.append("rect").attr("class", "device").attr("x", left).attr("y", top).attr("width", deviceWidth).attr("height", deviceHeight).attr("rx", 5);
      if (d.worker)
        box.append("rect").attr("x", left).attr("y", top + deviceHeight * (1 - Math.min(1, share))).attr("width", deviceWidth).attr("height", deviceHeight * Math.min(1, share))
          .attr("rx", 5).attr("fill", cleave.colour("blue")).attr("opacity", 0.35);
      box.append("text").attr("x", left + deviceWidth / 2).attr("y", top + 21).attr("text-anchor", "middle").text(d.number);
      tips(box, `device ${d.number}${d.kind ? " (" + d.kind + ")" : ""}` + (d.worker ? `\nworker ${d.number} computes ${cleave.percent(share)} of the step` : "\nno worker"));
    }
    return rows;
  }

  cleave.addSection({
    id: "machine", title: "Machine and links",
    has: (s) => { const n = nodesOf(s); return n && n.length > 0 && n.some((x) => x.devices.length > 0) && d3.sum(n, (x) => x.devices.length) > 1; },
    say: "Devices, nodes and the links between them. A link's colour and width say for which share of the predicted step it carries " +
      "something; the filling of a device, for which share its worker computes.",
    draw(parent, s) {
      const { list: links, known: loads } = cleave.busyLinks(s), room = parent.clientWidth - 18;
      const most = d3.max(nodesOf(s), (n) => n.devices.length), rows = Math.ceil(most / perRow), columns = Math.min(perRow, most);
      const size = { width: Math.max(210, columns * (deviceWidth + gap) + 28), height: 12 + rows * (deviceHeight + 42) + 24 };
      const fit = Math.max(1, Math.floor((room + gap) / (size.width + gap))), nodes = gather(s, fit < 2 ? 1 : 4);
      if (nodes.some((n) => n.more.length)) size.height += 15;
      const across = Math.min(nodes.length, fit), bands = Math.ceil(nodes.length / across);
      const network = nodes.some((n) => n.out || n.in), width = across * (size.width + gap) - gap;
      const plot = e("div", { class: "plot" }), figure = e("figure", { "data-chart": "machine" }, plot);
      parent.append(figure);
      const top = network ? busHeight + drop : 4, band = size.height + top + 12, height = bands * band;
      const svg = d3.select(plot).append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("role", "group").attr("tabindex", 0)
        .style("max-width", Math.round(width * 1.15) + "px").attr("aria-label", "The machine: " + (links.length ? "the busiest link is " + links[0].name : "its links carry nothing"));
      const view = svg.append("g");
      d3.range(bands).forEach((b) => {
        const some = nodes.slice(b * across, (b + 1) * across);
        if (network) {
          view.append("rect").attr("class", "bus").attr("x", 2).attr("y", b * band + 2).attr("width", width - 4).attr("height", busHeight).attr("rx", 6);
          view.append("text").attr("class", "small").attr("x", 12).attr("y", b * band + 17).text("between the nodes");
        }
        some.forEach((n, i) => {
          const x = i * (size.width + gap), y = b * band + top;
          drawLink(view, n.out, x + size.width / 2 - 10, y, b * band + busHeight + 2);
          drawLink(view, n.in, x + size.width / 2 + 10, b * band + busHeight + 2, y);
          for (const [l, dx, anchor] of [[n.out, -18, "end"], [n.in, 18, "start"]])
            if (l && l.share !== undefined) view.append("text").attr("class", "small").attr("x", x + size.width / 2 + dx).attr("y", y - drop / 2 + 4)
              .attr("text-anchor", anchor).text((anchor === "end" ? "out " : "in ") + cleave.percent(l.share));
          drawNode(view, s, n, x, y, size);
        });
      });
      parent.append(cleave.legend([0, 0.25, 0.5, 0.75, 1].map((x) => ["busy " + Math.round(100 * x) + " %", cleave.loadColour(x)])));
      if (links.length && loads)
        parent.append(e("p", { class: "hint", text: `The busiest link is ${links[0].name}: ${cleave.percent(links[0].share)} of the step, ${cleave.bytes(links[0].bytes)}.` }));
      cleave.addExports(figure);
    },
  });
})();
