#!/usr/bin/env python3
"""Draws the pictures of docs/explanation as SVG; run it after a change: python scripts/draw.py

A picture has a light ground of its own, so that people can read the picture in every scheme. In a dark scheme,
docs/site.css inverts its colours.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "explanation"
WIDTH = 720
INK, BLUE, GREEN, RED, GREY = "#1f2933", "#cfe3ff", "#cdeed8", "#ffd6d1", "#e3e7eb"


class Picture:
    def __init__(self, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            f' role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="15">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            f' orient="auto"><path d="M0 0L10 5L0 10z" fill="{INK}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#fbfcfd" stroke="#c5ccd3"/>',
        ]

    def text(self, x: float, y: float, words: str, anchor: str = "middle", size: int = 15) -> None:
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{INK}" font-size="{size}">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, words: str = "", fill: str = BLUE) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{INK}"/>'
        )
        lines = words.split("\n")
        for number, line in enumerate(lines):
            middle = y + height / 2 + 5 + (number - (len(lines) - 1) / 2) * 19
            self.text(x + width / 2, middle, line)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self.parts.append(
            f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{INK}" stroke-width="1.6" fill="none"{dash}'
            ' marker-end="url(#tip)"/>'
        )

    def dot(self, x: float, y: float, words: str, fill: str = BLUE) -> None:
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="15" fill="{fill}" stroke="{INK}"/>')
        self.text(x, y + 5, words, size=13)

    def save(self, name: str) -> None:
        (FOLDER / f"{name}.svg").write_text("\n".join([*self.parts, "</svg>", ""]))


def time() -> None:
    p = Picture(250, "A record is late if its window is closed by stream time")
    p.text(20, 30, "Records in the order in which they arrive; the number is the timestamp", "start")
    for number, (stamp, fill) in enumerate(
        [(2, BLUE), (7, BLUE), (11, BLUE), (8, GREEN), (16, BLUE), (9, RED)]
    ):
        p.dot(70 + number * 110, 75, str(stamp), fill)
        p.text(70 + number * 110, 115, f"stream time {[2, 7, 11, 11, 16, 16][number]}", size=13)
    p.arrow(40, 160, 690, 160)
    p.box(60, 175, 300, 36, "window 0 to 10", BLUE)
    p.box(360, 175, 150, 36, "grace 5", GREY)
    p.text(530, 198, "closed at stream time 15", "start", 14)
    p.text(20, 238, "Green: out of order, counted.   Red: late, dropped and counted as late.", "start", 14)
    p.save("time")


def windows() -> None:
    p = Picture(350, "Four kinds of windows over the same records")
    records = [1, 4, 6, 12, 13, 22]
    x = [150 + stamp * 22 for stamp in range(26)]
    p.text(20, 40, "records", "start")
    for stamp in records:
        p.dot(x[stamp], 36, str(stamp))
    rows = [
        ("tumbling", [(0, 10), (10, 20), (20, 25)], 0),
        ("hopping", [(0, 10), (5, 15), (10, 20), (15, 25)], 1),
        ("sessions", [(1, 6), (12, 13), (22, 22)], 0),
        ("sliding", [(1, 6), (4, 13), (12, 22)], 1),
    ]
    y = 75
    for name, spans, staggered in rows:
        p.text(20, y + 22, name, "start")
        for number, (start, end) in enumerate(spans):
            top = y + (number % 2) * 24 * staggered
            p.box(x[start], top, max((end - start) * 22, 10), 20, "", GREEN if name == "sessions" else BLUE)
        y += 62
    p.text(
        20,
        338,
        "Tumbling: size 10. Hopping: every 5. Sessions: gap 5. Sliding: at most 10 apart, three of them drawn.",
        "start",
        13,
    )
    p.save("windows")


def joins() -> None:
    p = Picture(440, "Three kinds of joins")

    def x(stamp: float) -> float:
        return 130 + stamp * 22

    p.text(20, 30, "Stream and stream: pairs at most 5 apart", "start")
    p.box(x(1), 45, 220, 96, "", "#eef3f8")
    for y, name, stamps in ((70, "views", (6, 14)), (117, "clicks", (9, 24))):
        p.text(20, y + 5, name, "start", 14)
        for stamp in stamps:
            p.dot(x(stamp), y, str(stamp), GREEN if stamp in (6, 9) else GREY)
    p.arrow(x(6) + 9, 82, x(9) - 9, 105)
    p.text(20, 175, "Stream and table: each order with the row that is there", "start")
    p.text(20, 206, "orders", "start", 14)
    p.text(20, 257, "prices", "start", 14)
    for stamp, start, end, words in ((5, 1, 10, "price 8"), (15, 10, 25, "price 9")):
        p.dot(x(stamp), 201, str(stamp), GREEN)
        p.box(x(start), 238, (end - start) * 22, 28, words)
        p.arrow(x(stamp), 217, x(stamp), 236)
    p.text(20, 302, "Table and table: the result follows both sides", "start")
    rows = [
        ("names", [(1, 25, "Ann", BLUE)]),
        ("ages", [(5, 15, "30", BLUE), (15, 25, "31", BLUE)]),
        ("result", [(5, 15, "Ann is 30", GREEN), (15, 25, "Ann is 31", GREEN)]),
    ]
    for number, (name, spans) in enumerate(rows):
        y = 316 + number * 34
        p.text(20, y + 19, name, "start", 14)
        for start, end, words, fill in spans:
            p.box(x(start), y, (end - start) * 22, 28, words, fill)
    p.text(20, 432, "Time goes from left to right. Green: takes part in a result.", "start", 13)
    p.save("joins")


def partitions() -> None:
    p = Picture(270, "Co-partitioned topics meet in one task")
    for number in range(3):
        y = 50 + number * 65
        p.box(20, y, 150, 40, f"orders, partition {number}", BLUE)
        p.text(180, y + 25, "+")
        p.box(190, y, 160, 40, f"shops, partition {number}", GREEN)
        p.box(430, y, 110, 40, f"task 0_{number}", GREY)
        p.arrow(350, y + 20, 428, y + 20)
        p.box(590, y, 110, 40, "store", BLUE)
        p.arrow(540, y + 20, 588, y + 20)
    p.text(20, 30, "A key has the same partition number in both topics.", "start")
    p.text(
        20,
        255,
        "A changed key goes through a repartition topic to the task of its new partition.",
        "start",
        14,
    )
    p.save("partitions")


def state() -> None:
    p = Picture(230, "A store, its record cache and its changelog")
    p.box(20, 80, 110, 50, "operator", BLUE)
    p.box(190, 80, 120, 50, "record cache", GREY)
    p.box(370, 80, 130, 50, "store on disk", GREEN)
    p.box(570, 80, 130, 50, "changelog\ntopic", BLUE)
    for start, end in ((130, 188), (310, 368), (500, 568)):
        p.arrow(start, 105, end, 105)
    p.text(340, 65, "flush", size=14)
    p.text(535, 65, "commit", size=14)
    p.arrow(635, 130, 635, 180, dashed=True)
    p.arrow(635, 180, 437, 180, dashed=True)
    p.arrow(437, 180, 437, 132, dashed=True)
    p.text(535, 203, "restore on another machine", size=14)
    p.save("state")


def commit() -> None:
    p = Picture(290, "A transaction holds outputs, changelogs and offsets together")
    p.box(20, 110, 120, 60, "input\noffsets 40-49", BLUE)
    p.box(190, 110, 90, 60, "task", GREY)
    p.arrow(140, 140, 188, 140)
    p.box(360, 20, 230, 230, "", "#eef3f8")
    p.text(475, 45, "one transaction")
    for number, words in enumerate(["outputs", "changelog records", "committed offset 50"]):
        y = 65 + number * 60
        p.box(380, y, 190, 40, words, GREEN)
        p.arrow(280, 140, 378, y + 20)
    p.box(620, 110, 85, 60, "readers\nsee all", BLUE)
    p.arrow(590, 140, 618, 140)
    p.text(
        20,
        275,
        "A crash before the end of the transaction: readers see none of it, and offsets 40-49 are read again.",
        "start",
        13,
    )
    p.save("commit")


def rebalance() -> None:
    p = Picture(300, "A worker goes, and the standby becomes the task")
    p.text(170, 30, "before")
    p.text(550, 30, "after")
    p.box(20, 50, 150, 130, "", "#eef3f8")
    p.text(95, 72, "worker A")
    p.box(35, 85, 120, 34, "task 0_0", GREEN)
    p.box(35, 130, 120, 34, "standby 0_1", GREY)
    p.box(185, 50, 150, 130, "", "#eef3f8")
    p.text(260, 72, "worker B")
    p.box(200, 85, 120, 34, "task 0_1", GREEN)
    p.box(200, 130, 120, 34, "standby 0_0", GREY)
    p.arrow(345, 115, 400, 115)
    p.text(372, 100, "B dies", size=13)
    p.box(410, 50, 150, 130, "", "#eef3f8")
    p.text(485, 72, "worker A")
    p.box(425, 85, 120, 34, "task 0_0", GREEN)
    p.box(425, 130, 120, 34, "task 0_1", GREEN)
    p.box(575, 50, 125, 130, "worker B\nis out of\nthe group", RED)
    p.text(
        20,
        220,
        "A reads only the end of the changelog of 0_1, because its standby is almost complete.",
        "start",
        14,
    )
    p.text(20, 245, "Without a standby, A reads the whole changelog first.", "start", 14)
    p.text(20, 270, "If B still lives, brokers refuse its commits: its generation is over.", "start", 14)
    p.save("rebalance")


def runners() -> None:
    p = Picture(300, "One topology, three runners")
    p.box(20, 115, 140, 70, "topology\n(plain data)", BLUE)
    for number, (name, where) in enumerate(
        [
            ("TopologyTestDriver", "in the process of a test, no broker"),
            ("workers", "live: a consumer group of processes"),
            ("Spark", "history in batches, or a stream"),
        ]
    ):
        y = 25 + number * 90
        p.box(250, y, 180, 60, name, GREEN)
        p.arrow(160, 150, 248, y + 30)
        p.text(445, y + 35, where, "start", 13)
    p.text(20, 285, "All three use the same operators, and give the answer of Kafka Streams.", "start", 14)
    p.save("runners")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (time, windows, joins, partitions, state, commit, rebalance, runners):
        draw()
