"""The page in a real Chromium: what it shows, follows and offers, and that it stays within its own rules."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
import pytest_asyncio

from streamapp.consumer.account import ConsumerMetrics, ConsumerStatus
from streamapp.serdes import JsonSerde
from streamapp.web.view_source import (
    InputStatus,
    RestoreStatus,
    StandbyStatus,
    SubtopologyGraph,
    TopologyGraph,
    TopologyNode,
)

from .conftest import Serve, serving
from .example import AIRPORTS, ExampleSource
from .fakes import open_empty

playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),  # a browser belongs to its event loop
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


class Opened:
    """The page, open, over a source that tests change."""

    def __init__(self, page: Any, source: ExampleSource, complaints: list[str]) -> None:
        self.page, self.source, self.complaints = page, source, complaints

    async def shows(self, selector: str, text: str) -> None:
        await playwright.expect(self.page.locator(selector).first).to_contain_text(text, timeout=30_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def serve() -> AsyncIterator[Serve]:
    async with serving() as start:
        yield start


@pytest_asyncio.fixture(loop_scope="module")
async def opened(serve: Serve, browser: Any) -> AsyncIterator[Opened]:
    source = ExampleSource()
    client = await serve(source)
    async with await browser.new_page(viewport={"width": 1280, "height": 900}) as page:
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type == "error" else None
        )
        await page.goto(str(client.make_url("/")))
        yield Opened(page, source, complaints)


async def test_shows_the_worker_and_follows_it(opened: Opened) -> None:
    await opened.shows("h1", "flights")
    await opened.shows("#state", "running")
    await opened.shows("#partitions", "flights 1")
    await opened.shows("#topology .badge", "lag")
    before = await opened.page.locator("#processed").text_content()
    opened.source.advance(50)
    await playwright.expect(opened.page.locator("#processed")).not_to_have_text(before, timeout=30_000)
    opened.source.restore(40)
    await opened.shows("#state", "restoring")
    await opened.shows("#restore", "39.9 %")
    await opened.shows("#partitions", "delays-by-airport: 40 %")
    await opened.shows("#entries-note", "is being restored")
    assert [each for each in opened.complaints if "503" not in each] == []


async def test_shows_copies_and_a_pause(opened: Opened) -> None:
    stores = (RestoreStatus("delays-by-airport", "flights-delays-by-airport-changelog", 5, 0, 90, 100),)
    opened.source.worker = dataclasses.replace(
        opened.source.worker, paused=True, standbys=(StandbyStatus("1_5", 5, True, stores),)
    )
    await opened.shows("#state", "running, paused")
    await opened.shows("#findings", "no records are processed")
    await opened.shows("#partitions .standby", "moves here when it is warm, 10 behind")
    assert opened.complaints == []


async def test_records_that_wait_for_agents_and_consumers_are_lag(opened: Opened) -> None:
    """The page said that the worker keeps up, while 96 records waited for its agents, and 30 for its consumers."""
    (running, *_) = opened.source.worker.tasks
    caught_up = tuple(dataclasses.replace(each, position=each.end) for each in running.inputs)
    books = ConsumerStatus(
        "books", ("orders",), "running", None, ("orders-0",), ConsumerMetrics(), None, None, None, 0.0, ()
    )
    opened.source.worker = dataclasses.replace(
        opened.source.worker,
        tasks=(dataclasses.replace(running, inputs=caught_up),),
        agent_inputs=(InputStatus("letters", 1, 4, 100),),
        consumers=(dataclasses.replace(books, lag={"orders-0": 20, "orders-1": 10}),),
    )
    await opened.shows("#lag", "126")
    await opened.shows("#lag-note", "0 of 1 task behind, 96 wait for agents, 30 wait for consumers")
    await opened.shows("#findings .calm", "126 records wait")


async def test_one_slow_answer_does_not_hold_old_figures_on_the_page(serve: Serve, browser: Any) -> None:
    source = ExampleSource()
    client = await serve(source)
    asked, release = asyncio.Event(), asyncio.Event()

    async def hold(route: Any) -> None:
        asked.set()
        await release.wait()
        await route.continue_()

    async with await browser.new_page() as page:
        await page.clock.install()
        await page.clock.pause_at(datetime.now() + timedelta(minutes=1))
        await page.route("**/status", hold, times=1)
        await page.goto(str(client.make_url("/")))
        await asked.wait()
        await page.clock.run_for(8_000)
        release.set()
        await playwright.expect(page.locator("#state")).to_contain_text("running", timeout=30_000)
        await page.wait_for_selector("#topology svg")  # the first step is over
        source.worker = dataclasses.replace(source.worker, paused=True)
        await page.clock.run_for(11_000)
        await playwright.expect(page.locator("#state")).to_contain_text("running, paused", timeout=10_000)


async def test_draws_every_node_and_table_without_overlap(opened: Opened) -> None:
    await opened.page.wait_for_selector("#topology svg")
    nodes = [node for sub in opened.source.topology().subtopologies for node in sub.nodes]
    assert await opened.page.locator("#topology .node").count() == len(nodes)
    assert await opened.page.locator("#topology .store").count() == len({s for n in nodes for s in n.stores})
    boxes = await opened.page.eval_on_selector_all(
        "#topology .node .box",
        "all => all.map(e => e.getBoundingClientRect()).map(r => [r.x, r.y, r.right, r.bottom])",
    )
    overlapping = [
        (a, b)
        for n, a in enumerate(boxes)
        for b in boxes[n + 1 :]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]
    assert overlapping == []
    assert opened.complaints == []


async def test_shows_the_newest_entries_as_they_change(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    await opened.shows("#entries tbody tr", AIRPORTS[-1])
    store = opened.source.stores["delays-by-airport", opened.source.partition_for("", b"JFK")]
    store.put("JFK", {"flights": 1_000_000}, 2_000_000_000_000)
    await opened.shows("#entries tbody tr", "1000000")


async def test_opens_with_a_table_of_the_application_and_lists_stores_of_operators_last(
    serve: Serve, browser: Any
) -> None:
    source = ExampleSource()
    parked = open_empty("a-parked", "key_value")
    parked.put("JFK", "waits for a retry")
    source.add_table("a-parked", "key_value", {0: parked}, is_internal=True)
    source.tables_ = {"a-parked": source.tables_.pop("a-parked"), **source.tables_}
    client = await serve(source)
    async with await browser.new_page() as page:
        await page.goto(str(client.make_url("/")))
        await page.wait_for_selector("#table-list button[aria-pressed=true]")
        listed = await page.locator("#table-list li").all_text_contents()
        chosen = await page.locator("#table-list button[aria-pressed=true] strong").text_content()
    assert chosen in [name for name, table in source.tables_.items() if not table.is_internal]
    assert listed[-2] == "Stores of operators"
    assert listed[-1].startswith("a-parked")


async def test_looks_up_a_key_with_the_keyboard(opened: Opened) -> None:
    await opened.shows("#entries tbody tr", AIRPORTS[-1])
    await opened.page.locator("#lookup-key").focus()
    await opened.page.keyboard.type("BOS")
    await opened.page.keyboard.press("Enter")
    await playwright.expect(opened.page.locator("#entries tbody tr")).to_have_count(1)
    await opened.shows("#entries tbody tr", "BOS")
    await opened.page.locator("#lookup-key").fill("XYZ")
    await opened.page.keyboard.press("Enter")
    await opened.shows("#entries-note", "no entry for key 'XYZ'")


async def test_a_table_with_the_entries_of_the_table_before_shows_them(opened: Opened) -> None:
    """The page emptied the list of entries, and drew the list only when the entries became other ones."""
    await opened.shows("#entries tbody tr", AIRPORTS[-1])
    rows = await opened.page.locator("#entries").inner_text()
    await opened.page.click("#table-list button[aria-pressed=true]")
    await playwright.expect(opened.page.locator("#entries")).to_have_text(rows, use_inner_text=True)


async def test_a_table_is_chosen_in_the_drawing(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    await opened.page.locator('.store[aria-label="Show table delays-by-airport-hour"]').focus()
    await opened.page.keyboard.press("Enter")
    await opened.shows("#table-name", "delays-by-airport-hour")
    await opened.shows("#entries thead", "Window")


async def test_text_from_the_worker_is_never_markup(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    nasty = "<img src=x onerror=document.title='taken'>"
    opened.source.stores["delays-by-airport", 0].put(nasty, nasty, 3_000_000_000_000)
    await opened.shows("#entries tbody tr", nasty)
    assert await opened.page.locator("#entries img").count() == 0


async def test_large_integers_keep_their_digits(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    opened.source.stores["delays-by-airport", 0].put("big", 2**63 - 1, 3_000_000_000_000)
    await opened.shows("#entries tbody tr", "9223372036854775807")


async def test_a_long_value_of_a_large_json_key_is_behind_its_link(opened: Opened) -> None:
    """The link had the number in quotes, so there was no entry for the key."""
    long = "x" * 1_000
    keys, kind = JsonSerde(), "key_value"
    rows = [({"id": 2**63 - 1}, long), (2**62 + 1, long)]
    stores = {partition: open_empty("by-id", kind, keys) for partition in range(opened.source.partitions)}
    for timestamp, (key, value) in enumerate(rows):
        stores[opened.source.partition_for("by-id", keys.serialize(key))].put(key, value, timestamp)
    opened.source.add_table("by-id", kind, stores, key_serde=keys)
    await opened.page.reload()
    await opened.page.locator("#table-list button", has_text="by-id").click()
    await opened.shows("#entries tbody", "all 1,000 characters")
    links = opened.page.locator("#entries tbody a.more")
    await playwright.expect(links).to_have_count(2)
    for link in await links.all():
        answer = await opened.page.request.get(urljoin(opened.page.url, await link.get_attribute("href")))
        assert (await answer.json())["value"] == long


async def test_says_when_the_worker_does_not_answer(opened: Opened) -> None:
    await opened.shows("#state", "running")
    await opened.page.context.set_offline(True)
    await opened.shows("#offline", "The worker does not answer")
    await opened.page.context.set_offline(False)
    await playwright.expect(opened.page.locator("#offline")).to_be_hidden(timeout=10_000)


async def test_fits_every_width(opened: Opened) -> None:
    await opened.shows("#entries tbody tr", AIRPORTS[-1])
    for width in (360, 768, 1280, 2000):
        await opened.page.set_viewport_size({"width": width, "height": 800})
        assert await opened.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_landmarks_and_names_for_assistive_technology(opened: Opened) -> None:
    await opened.shows("#entries tbody tr", AIRPORTS[-1])
    for role, name in [
        ("region", "Topology"),
        ("region", "Tables"),
        ("region", "What stands out"),
        ("navigation", "Tables"),
        ("textbox", "Key"),
        ("button", "Look up"),
        ("button", "Show table rotations"),
    ]:
        assert await opened.page.get_by_role(role, name=name, exact=True).count() >= 1, (role, name)
    unnamed = await opened.page.eval_on_selector_all(
        "button, a, input", "all => all.filter(e => !(e.textContent || e.labels?.length)).length"
    )
    assert unnamed == 0


CITIES = ["Seattle", "San Francisco International", "New York John F Kennedy International Airport"]


async def test_words_of_keys_stay_whole(opened: Opened) -> None:
    for n, city in enumerate(CITIES):
        value = {"carriers": {f"carrier {m}": m for m in range(40)}}
        opened.source.stores["delays-by-airport", 0].put(city, value, 3_000_000_000_000 + n)
    for width in (390, 1400):
        await opened.page.set_viewport_size({"width": width, "height": 900})
        await opened.shows("#entries tbody tr", CITIES[-1])
        broken = await opened.page.evaluate(
            """() => [...document.querySelectorAll("#entries tbody th span")].flatMap((key) => {
              const text = key.firstChild;
              return [...text.data.matchAll(/[^ ]+/g)].filter((word) => {
                const range = document.createRange();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                return range.getClientRects().length > 1;
              }).map((word) => word[0]);
            })"""
        )
        assert broken == []
        assert await opened.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_key_that_is_not_there_is_not_an_empty_table(opened: Opened) -> None:
    for table in ("delays-by-airport-hour", "delays-by-airport"):
        await opened.page.locator(f'button[data-focus="{table}"]').click()
        await opened.shows("#entries tbody tr", "")
        await opened.page.locator("#lookup-key").fill("Nowhere")
        await opened.page.keyboard.press("Enter")
        await opened.shows("#entries-note", "o entry for")
        await opened.shows("#entries-note", "Nowhere")
        await opened.page.get_by_role("button", name="Show the newest").click()
        await opened.shows("#entries-note", "The newest entries")
        await playwright.expect(opened.page.locator("#lookup-clear")).to_be_hidden()
    await opened.page.locator('button[data-focus="carriers"]').click()
    await opened.shows("#entries-note", "No entries yet")


async def test_dropped_records_stand_out(opened: Opened) -> None:
    opened.source.worker = dataclasses.replace(
        opened.source.worker, dropped_records={"0_0": 5_000}, lost_records={"0_0": 5_000}
    )
    # On a slow machine, other warnings may come first.
    await opened.shows("#findings .warning:has-text('records were dropped')", "5,000 records were dropped")
    assert "keeps up" not in await opened.page.locator("#findings").inner_text()


async def test_a_long_value_is_shortened_and_the_whole_is_a_link_away(opened: Opened) -> None:
    opened.source.stores["delays-by-airport", 0].put("a/b ü", "x" * 100_000, 3_000_000_000_000)
    await opened.shows("#entries tbody tr", "all 100,000 characters")
    shown = await opened.page.locator("#entries tbody tr").first.inner_text()
    assert len(shown) < 1_000
    href = await opened.page.locator("#entries tbody a").first.get_attribute("href")
    home = opened.source.partition_for("", "a/b ü".encode())
    opened.source.stores["delays-by-airport", home].put("a/b ü", "y" * 100_000, 3_000_000_000_001)
    answer = await opened.page.request.get(await opened.page.evaluate(f"new URL('{href}', location).href"))
    assert (await answer.json())["value"] == "y" * 100_000


@pytest.mark.parametrize("state", ["failed", "stuck"])
async def test_a_long_reason_fits(opened: Opened, state: Any) -> None:
    reason = "ProcessorError: " + "x" * 300
    opened.source.worker = dataclasses.replace(opened.source.worker, state=state, reason=reason)
    for width in (390, 1400):
        await opened.page.set_viewport_size({"width": width, "height": 900})
        await opened.shows("#findings .error", reason)
        await opened.shows("#entries-note", reason)
        assert await opened.page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_restart_with_another_topology_is_drawn_and_the_lost_table_is_left(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    await opened.shows("#topology", "Sub-topology 0")
    graph = TopologyGraph("", "", [SubtopologyGraph(7, [TopologyNode("look-up", "processor")])])
    opened.source.topology = lambda: graph  # type: ignore[method-assign]
    del opened.source.tables_["delays-by-airport"]
    await opened.shows("#topology .label", "look-up")
    await playwright.expect(opened.page.locator("#table-name")).not_to_have_text(
        "delays-by-airport", timeout=30_000
    )


async def test_the_owners_of_the_chosen_table_follow_a_rebalance(opened: Opened) -> None:
    await opened.shows("#table-name", "delays-by-airport")
    table = opened.source.tables_["delays-by-airport"]
    owners = dict.fromkeys(table.owners, "http://new-worker:6066")
    opened.source.tables_["delays-by-airport"] = dataclasses.replace(table, owners=owners, local=frozenset())
    await opened.shows("#table-about", "on http://new-worker:6066")


async def test_a_tab_names_no_state_of_a_worker_that_does_not_answer(opened: Opened) -> None:
    await opened.shows("h1", "flights")
    await opened.page.route("**/status", lambda route: route.abort())
    await playwright.expect(opened.page).to_have_title("flights · no answer", timeout=30_000)
    refusal = {"status": 401, "json": {"error": "a login is needed"}}
    await opened.page.unroute("**/status")
    await opened.page.route("**/status", lambda route: route.fulfill(**refusal))
    await opened.shows("#offline", "refuses the requests of this page: a login is needed")


async def test_a_source_of_many_topics_and_a_topic_of_many_readers_fit_into_their_nodes(
    opened: Opened,
) -> None:
    source = TopologyNode("source", "source", [f"orders-of-region-{n}" for n in range(300)], (), ["shared"])
    readers = [SubtopologyGraph(n, [TopologyNode(f"reader-{n}", "source", ["shared"])]) for n in range(1, 30)]
    first = SubtopologyGraph(0, [source, TopologyNode("shared", "sink", ["shared"])])
    opened.source.topology = lambda: TopologyGraph("", "", [first, *readers])  # type: ignore[method-assign]
    await opened.shows("#topology .detail", "300 topics")
    too_wide = await opened.page.eval_on_selector_all(
        "#topology .node",
        """all => all.filter(node => [...node.querySelectorAll(".label, .detail")].some(
            text => text.getBBox().width > node.querySelector(".box").getBBox().width)).length""",
    )
    assert too_wide == 0
