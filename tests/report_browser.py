"""Opens reports in headless Chromium and looks at them: cli_browser.sh makes the pages.

    report_browser.py FOLDER [SHOTS]     with SHOTS, pictures of all charts go there
"""
import base64
import json
import os
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

FOLDER = sys.argv[1]
SHOTS = sys.argv[2] if len(sys.argv) > 2 else None
CHARTS = ["candidates", "network", "timeline", "memory", "traffic", "types", "speedup-fixed",
          "times-fixed", "speedup-growing", "times-growing", "loss", "accuracy", "step-times"]


def start():
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    # Containers have neither user namespaces nor a large /dev/shm.
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.set_page_load_timeout(60)
    return driver


class Page:
    def __init__(self, driver, name):
        self.driver, self.name = driver, name
        driver.get_log("performance")
        driver.get("file://" + os.path.join(FOLDER, name))
        self.wait("window.cleave && cleave.ready === true", "everything is drawn")
        self.quiet()

    def js(self, text, *arguments):
        return self.driver.execute_script("return " + text, *arguments)

    def wait(self, condition, what):
        end = time.time() + 30
        while not self.js(condition):
            self.quiet()
            self.check(time.time() < end, "waited 30 s until " + what)
            time.sleep(0.03)

    def check(self, truth, what):
        if not truth:
            raise SystemExit(f"{self.name}: not so: {what}")

    def quiet(self):
        """Nothing was complained about, and nothing was asked for."""
        for entry in self.driver.get_log("browser"):
            self.check(False, "no word on the console: " + entry["message"])
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                self.check(url.startswith("file://" + FOLDER) or url.startswith("data:"),
                           "no request to " + url[:200])

    def find(self, selector):
        found = self.driver.find_elements("css selector", selector)
        self.check(found, "there is " + selector)
        return found[0]

    def show(self, element):
        self.js("arguments[0].scrollIntoView({block: 'center'})", element)
        return element

    def chart(self, name):
        """The data sets of a chart of Chart.js."""
        return self.js("""document.querySelector('[data-chart="' + arguments[0] + '"]')
            .chart.data.datasets.map((d) => d.data)""", name)

    def hover(self, element, x, y):
        """At a place inside it, from its upper left corner."""
        size = self.show(element).size
        ActionChains(self.driver, duration=0).move_to_element_with_offset(
            element, int(x - size["width"] / 2), int(y - size["height"] / 2)).perform()

    def shot(self, prefix):
        if not SHOTS:
            return
        os.makedirs(SHOTS, exist_ok=True)
        for section in self.driver.find_elements("css selector", "main > section"):
            x, y, w, h = self.js("""(() => { const b = arguments[0].getBoundingClientRect();
                return [b.left + scrollX, b.top + scrollY, b.width, b.height]; })()""", section)
            picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
                "captureBeyondViewport": True,
                "clip": {"x": max(0, x - 8), "y": y - 4, "width": w + 16, "height": h + 4, "scale": 1}})
            name = f"{prefix}-{section.get_attribute('id')}.png"
            with open(os.path.join(SHOTS, name), "wb") as file:
                file.write(base64.b64decode(picture["data"]))


def load(*path):
    with open(os.path.join(FOLDER, *path), encoding="utf-8") as file:
        return json.load(file)


def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-6 * max(abs(x), abs(y), 1e-12) for x, y in zip(a, b))


# ---- the page draws the run that was made ----

def check_data(page):
    for name in CHARTS:
        page.find(f'[data-chart="{name}"]')
    search, limits, prediction = load("search.json"), load("limits.json"), load("a", "prediction.json")
    events = [json.loads(line) for line in open(os.path.join(FOLDER, "a", "events.jsonl"))]
    want = sorted(c["step_s"] for c in search["candidates"])[:24]
    page.check(near(page.chart("candidates")[0], want), "candidates are those of the search")
    memory = [[w["memory"][k] for w in prediction["workers"]] for k in prediction["workers"][0]["memory"]
              if any(w["memory"][k] for w in prediction["workers"])]
    page.check(page.chart("memory") == memory, "memory is that of the prediction")
    moved = sorted(c["bytes_moved"] for c in search["candidates"] if c["bytes_moved"] is not None)[:24]
    page.check(near(page.chart("traffic")[0], moved), "traffic is that of the search")
    speed = [p["speedup"] for p in limits["fixed"]["points"]]
    page.check(near([p["y"] for p in page.chart("speedup-fixed")[1]], speed), "the scaling curve")
    loss = [e["loss"] for e in events if e["event"] == "step"]
    page.check(near([p["y"] for p in page.chart("loss")[0]], loss), "the losses are those of the run")
    accuracy = [e["test_accuracy"] for e in events if e["event"] == "epoch"]
    page.check(near([p["y"] for p in page.chart("accuracy")[0]], accuracy), "the accuracies")
    trace = load("a", "predicted-trace.json")["traceEvents"]
    slices = sum(e["ph"] == "X" for e in trace)
    page.check(page.js("cleave.timelineChart.panels.map((p) => p.slices.n)")[0] == slices,
               "the timeline has every slice of the trace")
    layers = page.js("[...document.querySelectorAll('#network .node')].map((n) => [n.dataset.layer, n.dataset.cut])")
    page.check(["conv1", "sample"] in layers and ["fc1", "channel"] in layers, "layers have their cuts")
    page.check(page.find("#network .node path, #network .node rect"), "small pictures of the pieces")
    page.check(len(page.find("#findings").text) > 100, "a paragraph on what limits the run")
    cores = str(load("a", "machine.json")["nodes"][0]["cores"])
    page.check(["nodes.0.cores", cores] in page.js("""[...document.querySelectorAll("#details tr")].map((r) =>
        [...r.children].map((c) => c.textContent))"""), "the machine is among the details")


def check_quiet(driver):
    page = Page(driver, "quiet.html")
    epochs = [e for e in map(json.loads, open(os.path.join(FOLDER, "quiet.jsonl"))) if e["event"] == "epoch"]
    page.check(near([p["y"] for p in page.chart("loss")[0]], [e["train_loss"] for e in epochs]), "losses without steps")
    page.check(near([p["y"] for p in page.chart("accuracy")[0]], [e["test_accuracy"] for e in epochs]), "accuracies without steps")


def check_painted(page):
    """No canvas is empty: each has several colours."""
    for label, n in page.js("""[...document.querySelectorAll("canvas")].map((c) => {
            const d = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
            return [c.getAttribute("aria-label"), new Set(d).size]; })"""):
        page.check(n > 4, f"something is drawn: {label} ({n} colours)")


# ---- it answers ----

def check_hover(page):
    canvas = page.find('[data-chart="candidates"] canvas')
    page.hover(canvas, canvas.size["width"] / 2, 20)
    page.wait("""document.querySelector('[data-chart="candidates"]').chart.tooltip.opacity > 0""",
              "the candidates show a tip")
    canvas = page.find('[data-chart="timeline"] canvas')
    top = page.js("cleave.timelineChart.tops[0]")
    page.hover(canvas, 60, top + 4)
    tip = page.find("#tip")
    page.check(tip.is_displayed() and "worker 0" in tip.text, "the timeline shows a tip: " + tip.text)
    page.check("predicted" in tip.text and "measured" in tip.text, "predicted beside measured: " + tip.text)
    node = page.find('#network .node[data-layer="conv2"]')
    ActionChains(page.driver, duration=0).move_to_element(page.show(node)).perform()
    page.check("conv2" in tip.text and "cut" in tip.text, "a layer shows a tip: " + tip.text)


def check_long(driver):
    """A message that began long before the visible time is still shown."""
    page = Page(driver, "long.html")
    page.js("Object.assign(cleave.timelineChart.view, {t0: 0.0008, t1: 0.0009})")
    page.hover(page.find('[data-chart="timeline"] canvas'), 400, page.js("cleave.timelineChart.tops[0]") + 52)
    text = page.find("#tip").text
    page.check("reduce a" in text, "the long message is under the pointer: " + text)


def wheel(page, element, delta):
    page.js("""arguments[0].dispatchEvent(new WheelEvent("wheel", {deltaY: arguments[1], bubbles: true,
        cancelable: true, clientX: arguments[0].getBoundingClientRect().left + 200,
        clientY: arguments[0].getBoundingClientRect().top + 80}))""", element, delta)


def check_zoom(page):
    span = "(cleave.timelineChart.view.t1 - cleave.timelineChart.view.t0) / cleave.timelineChart.span"
    canvas = page.show(page.find('[data-chart="timeline"] canvas'))
    wheel(page, canvas, -300)
    page.check(page.js(span) > 0.999, "the wheel scrolls the page until the chart has the focus")
    page.js("arguments[0].focus()", canvas)
    wheel(page, canvas, -300)
    page.check(page.js(span) < 0.95, "the wheel zooms the timeline")
    before = page.js("cleave.timelineChart.view.t0")
    ActionChains(page.driver, duration=0).move_to_element(canvas).click_and_hold().move_by_offset(-120, 0).release().perform()
    page.check(page.js("cleave.timelineChart.view.t0") > before, "dragging moves the timeline")
    canvas.send_keys("+")
    zoomed = page.js(span)
    canvas.send_keys(Keys.ARROW_RIGHT)
    canvas.send_keys("0")
    page.check(zoomed < 0.9 and page.js(span) > 0.999, "keys zoom the timeline, and 0 shows all of it")
    svg = page.show(page.find("#network svg"))
    transform = "document.querySelector('#network svg > g').getAttribute('transform')"
    start = page.js(transform)
    page.js("arguments[0].focus()", svg)
    wheel(page, svg, -200)
    page.check(page.js(transform) != start, "the wheel zooms the network")


def check_keyboard(page):
    """Everything can be reached by Tab, and charts tell their values by arrows."""
    page.js("(document.activeElement.blur(), scrollTo(0, 0))")
    seen = set()
    body = page.find("body")
    body.send_keys(Keys.TAB)
    for _ in range(90):
        seen.add(page.js("""(() => { const f = document.activeElement.closest("[data-chart]");
            return f ? f.dataset.chart : document.activeElement.id; })()"""))
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
    missing = [c for c in CHARTS + ["theme"] if c not in seen]
    page.check(not missing, "Tab comes to " + ", ".join(missing))
    canvas = page.find('[data-chart="memory"] canvas')
    canvas.send_keys(Keys.ARROW_RIGHT)
    page.check(page.js("""document.querySelector('[data-chart="memory"]').chart.tooltip.opacity > 0"""),
               "an arrow shows a value")
    canvas.send_keys(Keys.ESCAPE)
    canvas = page.find('[data-chart="loss"] canvas')
    shown = """(() => { const t = document.querySelector('[data-chart="loss"]').chart.tooltip;
        return t.dataPoints.map((p) => p.raw.x); })()"""
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT):
        canvas.send_keys(key)
    page.check(page.js(shown) == [2], f"the second step, and no epoch beside it: {page.js(shown)}")
    canvas.send_keys(Keys.ESCAPE)
    canvas.send_keys(Keys.ARROW_LEFT)
    page.check(page.js(shown) == [57] * 3, f"the last step, with the epoch that it ends: {page.js(shown)}")
    canvas.send_keys(Keys.ESCAPE)


def check_marks(driver):
    """A measured time stands beside the candidate of its own network."""
    page = Page(driver, "marked.html")
    page.find("#subject option[value='1']").click()
    page.wait("cleave.ready === true", "the run with the search is drawn")
    marks = page.js("""(() => { const c = document.querySelector('[data-chart="candidates"]').chart.data;
        return c.labels.map((l, i) => [l.split(" (")[0], c.datasets[0].marks[i]]).filter((x) => x[1]); })()""")
    done = [json.loads(line) for line in open(os.path.join(FOLDER, "b", "events.jsonl"))][-1]
    page.check(len(marks) == 1 and marks[0][0] == "data" and near([marks[0][1]], [done["median_step_s"]]),
               f"the mark is of the run: {marks}")


# ---- what it says ----

def check_words(driver):
    """One predicted time on the whole page, advice that agrees with itself, and the next bar is the next plan."""
    page = Page(driver, "told.html")
    words = page.find("#findings").text
    text = words + page.find("#tiles").text
    page.check("12.3 ms" in text and "11.9 ms" not in text, "one predicted time in words: " + text)
    drawn = page.js("""cleave.svgOf(document.querySelector('[data-chart="timeline"]'))""")
    page.check("predicted" in drawn and "11.9" not in drawn.split("workers that compute")[1].split("ms<")[0],
               "the timeline names no other time of a step")
    page.check(abs(page.js("cleave.figures(cleave.subject()).predicted_s") - 0.0123) < 1e-9, "the figures have it, too")
    page.check("up to 2 are worth the price" in words, "what the study says: " + words)
    page.check("more workers" not in words and "a larger batch: with 64 images" in words,
               "and no advice against it: " + words)
    page.check("Next is data, 0.8 % slower" in words, "the next plan is the next bar: " + words)
    page.check("3 plans were run one against the other" in words and "owt took 12.0 ms a step, data 12.5 ms" in words, "what the trial found: " + words)
    tries = page.js("document.querySelector('[data-chart=\"candidates\"]').chart.data.datasets[0].tries.filter((x) => x > 0)")
    page.check(sorted(tries) == [0.012, 0.0125, 0.02], f"and a mark for each of them: {tries}")
    words = Page(driver, "slow.html").find("#findings").text
    page.check("Communication limits this run" in words and "up to 2 are worth the price" in words, "a run that waits: " + words)
    page.check("fewer workers" not in words and "moves less" not in words, "no advice against the study and the search: " + words)
    words = Page(driver, "busy.html").find("#findings").text
    page.check("70 % pass between its instructions. Something else probably had the cores" in words and "while nothing else runs" in words, "a busy host: " + words)


def check_axis(driver):
    """One plan that takes a hundred times as long does not flatten the others."""
    page = Page(driver, "outlier.html")
    most, longest, shortest = page.js("""(() => { const c = document.querySelector('[data-chart="candidates"]').chart, d = c.data.datasets[0].data;
        return [c.scales.x.max, Math.max(...d), Math.min(...d)]; })()""")
    page.check(most < longest / 10 and most > shortest, f"the axis ends at {most} s, the longest bar is {longest} s")
    drawn = page.js("""cleave.svgOf(document.querySelector('[data-chart="candidates"]'))""")
    page.check(page.js("cleave.seconds(arguments[0])", longest) + " ▸" in drawn, "and that bar ends in its figure")
    texts = page.js("document.querySelector('[data-chart=\"candidates\"]').chart.data.labels")
    page.check(any("(older weights)" in x for x in texts), f"plans with older weights are marked: {texts}")


def check_fits(driver):
    """Plans that do not fit are marked, and never first."""
    for name, chart in (("nofit.html", "compare"), ("nofit-search.html", "candidates")):
        page = Page(driver, name)
        labels, steps = page.js("""(() => { const d = document.querySelector('[data-chart="' + arguments[0] + '"]').chart.data;
            return [d.labels, d.datasets[0].data]; })()""", chart)
        at = [i for i, label in enumerate(labels) if "does not fit" in label]
        page.check(at and at[0] > 0 and steps[at[0]] == min(steps), f"the fastest bar is marked and not first: {labels}")
        page.check(all("does not fit" not in label for label in labels[:at[0]]), "those that fit come first")
    page = Page(driver, "nofit.html")
    page.find("#subject option[value='1']").click()
    page.wait("cleave.ready === true", "the one that does not fit is drawn")
    page.check("does not fit" in page.find("#tiles").text, "its head says so")
    page = Page(driver, "nofit-limits.html")
    marks = page.js("document.querySelector('[data-chart=\"speedup-fixed\"]').chart.data.datasets[1].pointStyle")
    page.check(marks[0] == "crossRot" and marks[1] == "circle", f"what does not fit has a cross: {marks}")
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True})
    ticks = Page(driver, "nofit-search.html").js("document.querySelector('[data-chart=\"candidates\"]').chart.scales.y.ticks.map((t) => [].concat(t.label).join('|'))")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.check("a very long nam…|does not fit" in ticks, f"a phone cuts names, and not the mark: {ticks}")


def check_broken(driver):
    """Wrong types are said in words, and the rest is drawn; Page.quiet finds uncaught errors."""
    for name, part, what in (("types", "network", "network.nodes should be a list"), ("inputs", "network", "network.nodes[2].inputs should be a list"),
                             ("circle", "network", "network.nodes[1].inputs names layer 5"), ("cut", "plan", "plan.layers.conv1.cut.n should be a number or a list"),
                             ("stages", "plan", "plan.stages[0] should be an object"), ("memory", "prediction", "prediction.workers[0].memory should be an object"),
                             ("candidates", "search", "search.candidates[0] should be an object"), ("nameless", "network", "network.nodes[2].name should be a text, and is missing"),
                             ("epochs", "epochs", "epochs should be a list"), ("columns", "steps", "steps.loss should be a list"), ("links", "machine", "machine.nodes should be a list")):
        page = Page(driver, f"broken-{name}.html")
        text = page.find("#wrong").text
        page.check(what in text and f"goes without {part}" in text, "the page says what is wrong: " + text)
        if name != "columns":
            page.find('[data-chart="loss"]')
        page.check(not page.js("document.querySelectorAll('main .wrong').length"), "all other parts are drawn")
        page.quiet()


def check_failure(driver):
    """What nobody foresaw: a page says that it failed, and is not merely empty."""
    for name, text in (("unreadable.html", "could not be drawn"), ("throws.html", "boom")):
        driver.get("file://" + os.path.join(FOLDER, name))
        box = driver.find_element("css selector", "#failed")
        if not (box.is_displayed() and text in box.text):
            raise SystemExit(f"{name}: not so: the page says that it failed: {box.text}")
    driver.get_log("browser")  # the failures were meant


# ---- layers, messages, ranges, links ----

def check_layer(driver):
    """The wheel zooms where a box was clicked; the panel of a layer; search; piles of repeated blocks."""
    page = Page(driver, "wide.html")
    nodes = "document.querySelectorAll('#network .node').length"
    network = page.js("cleave.subject().network.nodes.map((n) => n.name)")
    few = page.js(nodes)
    page.check(few < 30, f"repeated blocks are one box: {few}")
    page.check(page.js("""[...document.querySelectorAll("#network .node")].some((n) => +n.dataset.holds > 8)"""), "a box holds many")
    page.check("samples / 32" in page.find("#cuts").text and "channels" in page.find("#cuts").text, "the cuts in words: " + page.find("#cuts").text)
    conv = page.js("""(() => { const n = cleave.subject().network.nodes.find((x) => x.name === "conv1"); return 4 * n.shape.reduce((a, b) => a * b, 1); })()""")
    told = page.js("[...document.querySelectorAll('#network text.bytes')].map((t) => t.textContent.replace('\\u00a0', ' '))")
    page.check(page.js("cleave.bytes(arguments[0])", conv) in told, f"bytes on the arrows: {told}")
    page.check(page.js("document.querySelectorAll('#network path.moved').length") >= 1, "an arrow along which the cut changes")
    node = page.show(page.find('#network .node[data-layer="maxpool"]'))
    ActionChains(page.driver, duration=0).move_to_element(node).click().perform()
    transform = "document.querySelector('#network svg > g').getAttribute('transform')"
    before = page.js(transform)
    wheel(page, node, -200)
    page.check(page.js(transform) != before, "the wheel zooms a network that was clicked on a box")
    panel = page.find("#layer")
    page.check(panel.is_displayed() and "maxpool" in panel.text and "max pool" in panel.text and "forward" in panel.text,
               "the panel of the layer that was clicked: " + panel.text)
    veiled = page.js("cleave.chosen.name")
    page.check(veiled == "maxpool", "the timeline knows the layer")
    search = page.show(page.find("#search"))
    search.send_keys("layer4.2.conv2", Keys.ENTER)
    page.check("layer4.2.conv2" in panel.text, "the search finds a layer: " + panel.text)
    page.check(page.js("""document.querySelector("#network .node.chosen") !== null"""), "its box is marked")
    search.clear()
    search.send_keys("no such layer", Keys.ENTER)
    page.check("no layer" in page.find("#contents").text and not panel.is_displayed(), "what is not there is said")
    [b for b in page.driver.find_elements("css selector", "#network button") if b.text.startswith("Fold")][0].click()
    page.check(60 < page.js(nodes) < len(network), "all boxes, unfolded")
    page.quiet()


def check_fold(driver):
    """A block is one box, however its layers are cut; a click unfolds it, its name folds it again."""
    page = Page(driver, "mixed.html")
    boxes = "[...document.querySelectorAll('#network .node')].map((n) => [n.dataset.layer, +n.dataset.blocks, n.dataset.cut])"
    names = lambda: {name: (blocks, cut) for name, blocks, cut in page.js(boxes)}
    first = names()
    page.check(first["layer1.0.downsample.0"][0] == 3 and len(first) < 20, f"three blocks that are alike are one pile: {first}")
    page.check(first["layer3.2.conv1"] == (1, "mixed"), f"a block whose layers differ in their cuts is one box: {first}")
    node = page.find('#network .node[data-layer="layer3.2.conv1"]')
    page.check("n / 32 · 9" in node.text and "k / 4 · 1" in node.text, "and says both cuts: " + node.text)
    stripe = page.js("arguments[0].querySelectorAll('rect[width=\"7\"]').length", node)
    page.check(stripe == 3, f"its stripe shows where the cut changes: {stripe}")

    def click(layer):
        box = page.show(page.find(f'#network .node[data-layer="{layer}"]'))
        ActionChains(page.driver, duration=0).move_to_element(box).click().perform()

    click("layer3.2.conv1")
    inside = names()
    page.check({"layer3.2.conv1", "layer3.2.conv2", "layer3.2.conv3", "layer3.2.add"} <= set(inside) and inside["layer3.2.conv2"] == (0, "channel"),
               f"a click unfolds it: {set(inside) - set(first)}")
    panel = page.find("#layer")
    page.check(panel.find_element("css selector", "h3").text == "layer3.2" and "k / 4: 1 layer" in panel.text, "the panel of the block: " + panel.text)
    page.check(page.js("document.activeElement.dataset.layer") == "layer3.2.conv1", "the keyboard goes on in it")
    page.show(page.find("#network text.fold")).click()
    page.check(names() == first, "its name folds it again")
    click("layer1.0.downsample.0")
    page.check(names()["layer1.1.conv1"][0] == 1, "a click on a pile shows its blocks")
    click("layer1.1.conv1")
    page.check("layer1.1.conv2" in names(), "and a click on one of these its layers")
    [b for b in page.driver.find_elements("css selector", "#layer button") if b.text == "Fold layer1.0 …"][0].click()
    page.check(names() == first, "a button folds the pile")
    moved = page.js("document.querySelectorAll('#network path.moved').length")
    page.check(moved >= 1, "the arrow out of a block whose last layer is cut in another way is marked")
    page.quiet()


def check_tartan(driver):
    """Slices narrower than a pixel are put together: neighbouring pixels of 32 workers rarely differ."""
    page = Page(driver, "wide.html")
    share, lines = page.js("""(() => {
        const t = cleave.timelineChart, c = t.canvas, k = c.width / c.clientWidth, each = t.panelHeight / t.workers;
        const y = Math.round((t.tops[0] + 3.3 * each) * k), x = Math.round(50 * k), top = Math.round(t.tops[0] * k) + 2;
        const all = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
        const d = all.slice(y * c.width + x, (y + 1) * c.width - 4);
        const down = Array.from({length: Math.round(t.panelHeight * k) - 4}, (_, i) => all[(top + i) * c.width + (c.width >> 1)]);
        const changes = (a) => a.reduce((n, p, i) => n + (i > 0 && p !== a[i - 1]), 0);
        return [changes(d) / d.length, changes(down)]; })()""")
    page.check(share < 0.1, f"{share:.2f} of the pixels of a row differ from the one before")
    page.check(lines < 32, f"{lines} lines across the rows of workers that do the same")


def check_messages(driver):
    page = Page(driver, "pipe.html")
    sends = sum(e["ph"] == "X" and e["name"].startswith("send ") for e in load("pipe.trace")["traceEvents"])
    page.check(sends > 3 and page.js("cleave.timelineChart.nArrows") == sends, f"an arrow for each of {sends} messages")
    pairs = page.js("cleave.timelineChart.panels[0].messages.map((m) => [m.from, m.to])")
    page.check(all(abs(a - b) == 1 for a, b in pairs), "between neighbouring stages")
    button = [b for b in page.driver.find_elements("css selector", "#timeline button") if b.text == "Messages"][0]
    page.show(button).click()
    page.wait("cleave.timelineChart.nArrows === 0", "the arrows are gone")


def check_range(driver):
    page = Page(driver, "pipe.html")
    canvas = page.show(page.find('[data-chart="timeline"] canvas'))
    view = page.js("[cleave.timelineChart.view.t0, cleave.timelineChart.view.t1]")
    ActionChains(page.driver, duration=0).key_down(Keys.SHIFT).move_to_element(canvas).click_and_hold() \
        .move_by_offset(150, 0).release().key_up(Keys.SHIFT).perform()
    begin, end = page.js("cleave.timelineChart.range")
    page.check(end > begin > 0, "Shift and drag choose a range")
    page.check(page.js("[cleave.timelineChart.view.t0, cleave.timelineChart.view.t1]") == view, "and move nothing")
    forward = 0
    for e in load("pipe.trace")["traceEvents"]:
        if e["ph"] == "X" and e["name"].startswith("forward"):
            forward += max(0, min(end, (e["ts"] + e["dur"]) / 1e6) - max(begin, e["ts"] / 1e6))
    summed = page.js("(() => { const t = cleave.timelineChart; return cleave.rangeTotals(t.panels[0], t.range, t.view).groups[0]; })()")
    page.check(abs(summed - forward) < 1e-3 * forward + 1e-9, f"its totals are those of the trace: {summed} of {forward}")
    page.check("mean of 4 workers" in page.find("#range").text and "longest" in page.find("#range").text, page.find("#range").text)


def check_links(driver):
    """Links by their load, not by their bytes, and the machine as a picture."""
    page = Page(driver, "wide.html")
    links = [l for l in load("wide.json")["links"] if l["bytes"] > 0]
    share = sorted((l["share"] for l in links), reverse=True)[:12]
    page.check(near(page.chart("links")[0], share), "the busiest links are those of the highest load")
    page.check("node0.out" in page.js("""document.querySelector('[data-chart="links"]').chart.data.labels.slice(0, 8)"""),
               "those between the nodes, which are slow")
    drawn = page.js("[...document.querySelectorAll('#machine .link')].map((l) => l.dataset.link)")
    page.check({"node0.out", "node3.in", "dev0.out", "dev31.in"} <= set(drawn) and len(drawn) == 72, f"every link is drawn: {drawn}")
    link = page.find('#machine .link[data-link="node0.out"]')
    page.js("arguments[0].focus()", link)
    page.check("busy" in page.find("#tip").text and "4.50 GB/s" in page.find("#tip").text, page.find("#tip").text)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 360, "height": 780, "deviceScaleFactor": 1, "mobile": True})
    page = Page(driver, "wide.html")
    wide = page.js("""[...document.querySelectorAll("#machine text, #machine rect")].filter((e) => e.getBoundingClientRect().right > 352).length""")
    nodes = page.js("document.querySelectorAll('#machine rect.box').length")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    page.check(nodes == 1 and wide == 0, f"on a phone four equal nodes are drawn once: {nodes}, {wide} parts too wide")


def check_candidate(driver):
    """A click on a candidate shows it, and goes to the subject that has its network."""
    page = Page(driver, "told.html")
    click = lambda name: click_bar(page, name)
    panel = click("serial")
    page.check("serial" in panel.text and "not in this page" in panel.text and "--plan serial" in panel.text, "what is missing is said: " + panel.text)
    panel = click("data")
    page.check(panel.text.startswith("data") and "12.4 ms" in panel.text, "the candidate: " + panel.text)
    panel.find_element("css selector", "button").click()
    page.wait("cleave.ready === true && cleave.current === 1", "the run of that plan is shown")
    page.check("data" in page.find("#title").text, "its network and timeline")


def check_details(driver):
    """What a search kept of its candidates is shown where they are clicked."""
    page = Page(driver, "details.html")
    search = load("details.json")
    kept = {c["name"]: c for c in search["candidates"] if "plan" in c}
    other = next(name for name in kept if name != search["best"] and not name.startswith("pipedream") and kept[name]["plan"]["layers"] != kept[search["best"]]["plan"]["layers"])
    cuts = "[...document.querySelectorAll('#network .node')].map((n) => n.dataset.layer + ' ' + n.dataset.cut)"
    span = "cleave.timelineChart.panels.map((p) => p.t.span_s)"
    own = page.js(cuts)
    page.check(near(page.js(span), [kept[search["best"]]["timeline"]["span_s"]]), "the search's own plan is shown")
    click_bar(page, other)
    page.check(near(page.js(span), [kept[other]["timeline"]["span_s"]]), f"the timeline of {other}")
    page.check(page.js(cuts) != own and other in page.find("#network .other").text, f"the network of {other}")
    drawn = page.js("""cleave.svgOf(document.querySelector('[data-chart="timeline"]'))""")
    page.check(page.js("cleave.seconds(arguments[0])", kept[other]["step_s"]) in drawn, "under the time of its bar")
    page.show(page.find("#network .other button")).click()
    page.check(page.js(cuts) == own and near(page.js(span), [kept[search["best"]]["timeline"]["span_s"]]), "and back")
    page.quiet()


def click_bar(page, name):
    """Clicks on the bar of a candidate; the panel about it."""
    canvas = page.find('[data-chart="candidates"] canvas')
    pick = """(() => { const c = document.querySelector('[data-chart="candidates"]').chart, 
          i = c.data.labels.findIndex((l) => l.replace(/ \\((chosen|does not fit|older weights)\\)$/, "") === arguments[0]);
        const bar = c.getDatasetMeta(0).data[i];
        return [(bar.base + bar.x) / 2, bar.y]; })()"""
    end = time.time() + 10
    while True:  # bars still grow right after the page is drawn
        x, y = page.js(pick, name)
        page.hover(canvas, x, y)
        ActionChains(page.driver, duration=0).click().perform()
        panel = page.find("#candidate")
        if panel.text.split("\n")[0] == name or time.time() > end:
            return panel
        time.sleep(0.1)


def check_export(driver):
    """Every figure as an SVG that can be read and a PNG that is not empty."""
    for name in ("told.html", "wide.html"):
        page = Page(driver, name)
        charts = page.js("""[...document.querySelectorAll("[data-chart]")].map((f) => {
            const text = cleave.svgOf(f), d = new DOMParser().parseFromString(text, "image/svg+xml");
            return [f.dataset.chart, d.querySelectorAll("parsererror").length, d.querySelectorAll("path, rect, image").length, d.querySelectorAll("text").length,
              f.querySelectorAll(".exports button").length]; })""")
        page.check(len(charts) > 5, "there are charts")
        for chart, errors, shapes, texts, buttons in charts:
            page.check(errors == 0 and shapes > 4 and texts > 2 and buttons == 2, f"{chart} as SVG: {errors} errors, {shapes} shapes, {texts} texts")
        page.driver.set_script_timeout(60)
        for chart in ("candidates", "timeline", "network") if name == "told.html" else ("network", "timeline", "machine"):
            n, size = page.driver.execute_async_script("""const done = arguments[arguments.length - 1];
                cleave.pngOf(document.querySelector('[data-chart="' + arguments[0] + '"]')).then((b) => createImageBitmap(b).then((i) => {
                  const c = new OffscreenCanvas(i.width, i.height), g = c.getContext("2d"); g.drawImage(i, 0, 0);
                  done([new Set(new Uint32Array(g.getImageData(0, 0, i.width, i.height).data.buffer)).size, b.size]); }), (e) => done([0, String(e)]));""", chart)
            page.check(n > 4, f"{chart} as PNG: {n} colours, {size} bytes")
        saved = page.js("""(() => { const names = [], click = HTMLAnchorElement.prototype.click;
            HTMLAnchorElement.prototype.click = function () { names.push(this.download); };
            document.querySelector('[data-chart="network"] .exports button').click();
            HTMLAnchorElement.prototype.click = click; return names; })()""")
        page.check(saved == ["cleave-network.svg"], f"the button saves a file: {saved}")
        page.quiet()


# ---- dark, narrow, compared, large ----

CONTRAST = """(() => {
  const channel = (x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = (css) => { const c = d3.rgb(css); return 0.2126 * channel(c.r) + 0.7152 * channel(c.g) + 0.0722 * channel(c.b); };
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const names = ["ink", "quiet", "accent"], paper = cleave.colour("paper"), panel = cleave.colour("panel");
  return [light(getComputedStyle(document.body).backgroundColor), Math.min(...names.flatMap((n) =>
    [ratio(cleave.colour(n), paper), ratio(cleave.colour(n), panel)]))]; })()"""


def emulate_dark(driver, on):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})


def check_dark(page):
    emulate_dark(page.driver, True)
    time.sleep(0.1)
    page.wait("cleave.ready === true", "the dark page is drawn")
    light, contrast = page.js(CONTRAST)
    page.check(light < 0.05 and contrast >= 4.5, f"dark, and text is readable: contrast {contrast:.1f}")
    page.check(page.js("Chart.defaults.color") == page.js("cleave.colour('ink')"), "charts are dark, too")
    check_painted(page)
    page.shot("dark")
    emulate_dark(page.driver, False)
    time.sleep(0.1)
    page.wait("cleave.ready === true", "the light page is drawn")
    light, contrast = page.js(CONTRAST)
    page.check(light > 0.8 and contrast >= 4.5, f"light, and text is readable: contrast {contrast:.1f}")
    page.find("#theme").click()
    page.find("#theme").click()
    page.check(page.js(CONTRAST)[0] < 0.05, "the button makes it dark")
    page.find("#theme").click()


def check_killed(driver):
    page = Page(driver, "killed.html")
    f = page.js("cleave.figures(cleave.subject())")
    page.check(near([f["measured_s"], f["compute_s"]], [0.5, 0.25]), f"figures are those since the resumption: {f}")
    page.check(near([f["images_per_s"]], [64 / 0.5]), f"images/s are measured: {f}")


def check_phone(driver):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": True})
    page = Page(driver, "all.html")
    page.check(page.js("document.documentElement.scrollWidth") <= 360, "a phone does not scroll sideways")
    wide = page.js("""[...document.querySelectorAll("canvas, svg, .tiles li, h2, button")].filter((e) => {
        const b = e.getBoundingClientRect(); return b.right > 361 || b.width < 4; }).length""")
    page.check(wide == 0, f"{wide} parts are wider than a phone")
    check_painted(page)
    page.shot("phone")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def check_compared(driver):
    page = Page(driver, "two.html")
    page.check(len(page.chart("compare")[1]) == 2 and len(page.chart("step-times")) == 2, "both runs are shown")
    done = [[json.loads(line) for line in open(os.path.join(FOLDER, run, "events.jsonl"))][-1] for run in "ab"]
    for chart, key in (("compare-speed", "images_per_s"), ("compare-memory", "memory_bytes"), ("compare-moved", "bytes_moved")):
        page.check(near(page.chart(chart)[0], [d[key] for d in done]), f"{key} of both runs")
    text = page.find("#compare").text
    page.check("Differences" in text and "plan owt data" in text, "the differences between them: " + text)
    page.check("seed" not in text, "and nothing that is the same")
    plans = page.find("#plans").text
    page.check("channels / 2" in plans and "samples / 2" in plans, "plans side by side: " + plans)
    page.check(len(page.chart("loss")) == 4 and len(page.chart("accuracy")) == 2, "losses over each other")
    page.check("owt" in page.find("#title").text, "the first run is on top")
    page.find("#subject option[value='1']").click()
    page.wait("cleave.ready === true", "the other run is drawn")
    page.check("data" in page.find("#title").text, "the other run can be chosen")
    page.quiet()
    page.shot("two")
    labels = Page(driver, "labels.html").js("cleave.subjects.map((s) => s.label)")
    page.check(labels == ["p/same/run", "q/same/run"], f"names of runs differ: {labels}")


def check_background(driver):
    """Opened in a tab behind others, and then looked at: each chart is there once."""
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {
        "source": "Object.defineProperty(document, 'hidden', {get: () => true});"})
    page = Page(driver, "all.html")
    time.sleep(0.5)
    page.wait("cleave.ready === true", "everything is drawn in the background")
    drawn = page.js("[...document.querySelectorAll('[data-chart]')].map((f) => f.dataset.chart)")
    page.check(len(drawn) == len(set(drawn)), "each chart is drawn once: " + ", ".join(drawn))
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def check_large(driver):
    size = os.path.getsize(os.path.join(FOLDER, "large.html"))
    page = Page(driver, "large.html")
    paint = page.js("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.check(size < 20e6, f"{size} bytes are less than 20 MB")
    page.check(paint < 3000, f"first paint after {paint:.0f} ms")
    page.check(page.js("cleave.timelineChart.workers") == 1024, "1024 workers")
    canvas = page.show(page.find('[data-chart="timeline"] canvas'))
    frame = page.driver.execute_async_script("""const done = arguments[arguments.length - 1], c = arguments[0];
        c.focus(); const t = performance.now(); let n = 0;
        (function next() { if (n++ === 10) return done((performance.now() - t) / 10);
          c.dispatchEvent(new KeyboardEvent("keydown", {key: n % 2 ? "+" : "-"})); requestAnimationFrame(next); })();""", canvas)
    page.check(frame < 500, f"a frame of the large timeline takes {frame:.0f} ms")
    page.quiet()
    page.shot("large")
    print(f"large: {size / 1e6:.1f} MB, first paint {paint:.0f} ms, a frame {frame:.0f} ms")


def main():
    driver = start()
    try:
        check_quiet(driver)
        page = Page(driver, "all.html")
        check_data(page)
        check_painted(page)
        check_hover(page)
        check_zoom(page)
        check_keyboard(page)
        page.shot("light")
        check_dark(page)
        page.quiet()
        check_marks(driver)
        check_compared(driver)
        check_background(driver)
        check_large(driver)
        check_killed(driver)
        check_phone(driver)
        check_long(driver)
        for check in (check_words, check_fits, check_axis, check_broken, check_failure, check_layer, check_fold, check_tartan, check_messages, check_range,
                      check_links, check_candidate, check_details, check_export):
            check(driver)
    finally:
        driver.quit()


main()
