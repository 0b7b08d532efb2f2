"""The report and the live page in a real browser without a screen: Chromium, driven by selenium.

Skipped, with the reason, where there is no browser, no driver or no selenium (apt-get install chromium
chromium-driver).
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.page import main
from tests.pipeline.record.test_run_folder import started
from tests.pipeline.report.test_live import COMMAND, HOLD
from tests.pipeline.report_run import NUM_GENERATIONS, NUM_GROUPS, make_run

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if BROWSER is None or DRIVER is None:
    pytest.skip("no browser: apt-get install chromium chromium-driver", allow_module_level=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of the report of a short run and of one of 10,000 steps."""
    root = tmp_path_factory.mktemp("reports")
    found = {}
    for name, num_steps, num_shown in (("short", 30, 30), ("long", 10_000, 1000)):
        path = make_run(root / name, num_steps, num_shown=num_shown)
        assert main([str(path)]) == 0
        found[name] = (path / "report.html").as_uri()
    return found


def show(browser: Any, address: str, width: int) -> None:
    """Open a page as wide as a screen of ``width`` pixels and wait until it is drawn."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(address)
    wait_for(lambda: browser.execute_script("return document.body.dataset.ready") == "yes")


def wait_for(is_so: Callable[[], object], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.05)


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def text_of(browser: Any, selector: str) -> str:
    return str(browser.execute_script(f"return document.querySelector({json.dumps(selector)}).innerText"))


# The colours in the middle of each visible canvas: one that nothing was drawn on has a single one.
BLANK_CANVASES = """
const all = [...document.querySelectorAll("canvas")];
return all.filter((canvas) => canvas.width && canvas.offsetParent).map((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3]) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  }
  return seen.size;
})
"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_draws_every_chart_and_fits_the_screen(
    browser: Any, reports: dict[str, str], width: int, theme: str
) -> None:
    show(browser, reports["short"], width)
    browser.execute_script(f"setTheme('{theme}')")
    num_colours = browser.execute_script(BLANK_CANVASES)
    assert len(num_colours) > 15 and min(num_colours) > 5
    assert_fits(browser, width)
    assert complaints(browser) == []


def assert_fits(browser: Any, width: int) -> None:
    page = "document.documentElement"
    needed, given = browser.execute_script(f"return [{page}.scrollWidth, {page}.clientWidth]")
    assert needed <= given <= width, "something is wider than the screen"


def choose(browser: Any, box: str, value: object, event: str) -> None:
    """Give the one that the selector ``box`` finds its ``value``, as a user does, and tell it so."""
    script = "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
    browser.execute_script(f"{script} box.dispatchEvent(new Event(arguments[2]))", box, value, event)


def test_a_report_of_ten_thousand_steps_takes_less_than_three_seconds_of_the_processor(
    browser: Any, reports: dict[str, str]
) -> None:
    browser.execute_cdp_cmd("Performance.enable", {})
    show(browser, reports["long"], 1280)
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    assert 0 < next(one["value"] for one in metrics if one["name"] == "ThreadTime") < 3.0
    assert "10000 of 10000" in text_of(browser, "#tiles")
    assert complaints(browser) == []


def test_a_sample_opens_with_its_completion_verdict_and_task(browser: Any, reports: dict[str, str]) -> None:
    show(browser, reports["short"], 1280)
    browser.execute_script("document.querySelector('#samples-table tbody tr:nth-child(2)').click()")
    detail = text_of(browser, "#detail")
    assert "</script><b>step 30</b>" in detail and "why this score" in detail
    browser.execute_script("for (const one of document.querySelectorAll('#detail details')) one.open = true")
    assert "Write a function add_" in text_of(browser, "#detail")
    # One verdict only, by the filter.
    choose(browser, "select[aria-label=verdict]", "wrong", "input")
    verdicts = "return [...document.querySelectorAll('#samples-table .chip')].map((one) => one.innerText)"
    wait_for(lambda: set(browser.execute_script(verdicts)) == {"wrong"})
    assert complaints(browser) == []


def test_a_conversation_is_shown_turn_by_turn_with_its_feedback(
    browser: Any, reports: dict[str, str]
) -> None:
    show(browser, reports["short"], 1280)
    rows = "document.querySelectorAll('#samples-table tbody tr')"
    for number in range(browser.execute_script(f"return {rows}.length")):
        browser.execute_script(f"{rows}[{number}].click()")
        if "turn 1" in text_of(browser, "#detail"):
            break
    detail = text_of(browser, "#detail")
    parts = (
        "turn 1",
        "return -x",
        "feedback, 31 tokens",
        "a <i>wrong</i> result",
        "turn 2",
        "return x",
    )
    places = [detail.find(part) for part in parts]
    assert places == sorted(places) and places[0] >= 0, detail
    assert complaints(browser) == []


def test_tasks_are_found_in_whatever_case_and_the_steps_time_is_theirs(
    browser: Any, reports: dict[str, str]
) -> None:
    show(browser, reports["short"], 1280)
    choose(browser, "input[aria-label=task]", "ADD_3", "input")
    tasks = "return [...document.querySelectorAll('#samples-table td.mono')].map((one) => one.innerText)"
    wait_for(lambda: set(browser.execute_script(tasks)) == {"made/add_3"})
    # Thirty of four seconds, not since the run began.
    assert "in 2:00 min" in text_of(browser, "#tiles")
    assert complaints(browser) == []


def test_the_timeline_goes_to_a_step_and_says_who_waited_for_whom(
    browser: Any, reports: dict[str, str]
) -> None:
    show(browser, reports["short"], 1280)
    choose(browser, "input[aria-label=step]", 20, "change")
    words = text_of(browser, "#stepwords")
    assert words.startswith("Step 20 took") and "for generation" in words and "for rewards alone" in words
    browser.execute_script("document.querySelector('button[aria-label=\"next step\"]').click()")
    assert text_of(browser, "#stepwords").startswith("Step 21 took")
    assert complaints(browser) == []


def test_the_timeline_moves_on_with_the_run_unless_the_reader_has_chosen_a_window(
    browser: Any, reports: dict[str, str]
) -> None:
    show(browser, reports["short"], 1280)
    browser.execute_script(
        "window.tested = new Timeline(source, () => {}); document.body.append(tested.node);"
    )

    def shown_after(*actions: str) -> list[float]:
        for action in actions:
            browser.execute_script(action)
        return list(browser.execute_script("return [tested.plot.scales.x.min, tested.plot.scales.x.max]"))

    def grow(end_s: int) -> str:
        """The run has worked until then, and its page is told so."""
        return f"run.spans.push([3, 'step 31: update', {end_s - 1}, {end_s}, 31, null, 1]); tested.draw()"

    begun = "Math.min(...run.spans.map((span) => span[2]))"
    begun_s, last_s = browser.execute_script(f"return [{begun}, run.waits.at(-8)[1]]")
    first = shown_after("tested.draw()")
    assert first[0] == last_s and shown_after(grow(1000)) == [last_s, 1000]
    assert shown_after("tested.show(null)") == [begun_s, 1000]
    assert shown_after(grow(2000)) == [begun_s, 2000]
    middle, quarter = (begun_s + 2000) / 2, (2000 - begun_s) / 4
    zoomed = shown_after("tested.zoom(0.5)")
    assert zoomed == [middle - quarter, middle + quarter] and shown_after(grow(3000)) == zoomed
    # As uPlot does when the reader has drawn a window.
    drawn = shown_after("tested.plot.setScale('x', { min: 50, max: 90 })", grow(4000))
    assert drawn == [50, 90]
    wheeled = "tested.wheel({ preventDefault() {}, deltaY: 300 })"
    assert shown_after(wheeled, grow(5000)) == [70, 110]
    assert complaints(browser) == []


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with two runs, one of them running, and the address of its live page."""
    root = tmp_path_factory.mktemp("live")
    make_run(root / "done", 11)
    make_run(root / "half", 6, max_steps=12)
    watch = (COMMAND, "--watch", str(root), "--watch-port", "0")
    with started(HOLD, str(root / "half")), started(*watch) as (_, line):
        yield root, line.split()[2]


@pytest.mark.parametrize("width", [1280, 390])
def test_the_live_page_lists_and_compares_runs(browser: Any, live: tuple[Path, str], width: int) -> None:
    show(browser, live[1], width)
    table = text_of(browser, "#runs")
    assert "running" in table and "finished" in table and "6 of 12" in table
    browser.execute_script("for (const box of document.querySelectorAll('#runs input')) box.click()")
    charts = "return document.querySelectorAll('#compare canvas').length"
    wait_for(lambda: browser.execute_script(charts) >= 5)
    wait_for(lambda: "training.max_steps" in text_of(browser, "#compare"))
    assert min(browser.execute_script(BLANK_CANVASES)) > 5
    assert_fits(browser, width)
    assert complaints(browser) == []


def test_a_live_run_is_followed_and_stopped(browser: Any, live: tuple[Path, str]) -> None:
    root, address = live
    for width in (1280, 390):
        show(browser, address.replace("/?", "/runs/half?"), width)
        assert_fits(browser, width)
    assert "6 of 12" in text_of(browser, "#tiles") and text_of(browser, "#status") == "running"
    wait_for(lambda: str(NUM_GROUPS * NUM_GENERATIONS * 6) in text_of(browser, "#samples .bar"))
    grow(root / "half")
    wait_for(lambda: "7 of 12" in text_of(browser, "#tiles"))
    browser.execute_script("document.getElementById('stop').click()")
    wait_for(lambda: "was asked to stop" in text_of(browser, "#message"))
    wait_for(lambda: text_of(browser, "#status") == "stopped")
    assert browser.execute_script("return document.getElementById('stop').hidden")
    assert complaints(browser) == []


def grow(path: Path) -> None:
    """One more step of the run, as its process would commit it."""
    with sqlite3.connect(path / "run.db") as database:
        database.execute(
            "INSERT INTO steps SELECT 7, run_id, 7, status, 7, checkpoint, metrics, state, draw_ids, layout,"
            " last_call_id, seconds, num_tokens, committed_at + 4 FROM steps WHERE step = 6"
        )
    database.close()
