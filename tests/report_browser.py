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
    page.check("What differs" in text and "plan owt data" in text, "what differs between them: " + text)
    page.check("seed" not in text, "and what does not is not shown")
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
    finally:
        driver.quit()


main()
