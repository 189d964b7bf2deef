"""The task: order over its inputs, failures, punctuation, commit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from streamapp import (
    IntegerSerde,
    JoinWindows,
    LongSerde,
    Materialized,
    Processor,
    PunctuationType,
    Record,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StringSerde,
    TimeWindows,
    TopicPartition,
    Topology,
)
from streamapp.engine.collector import ResultRefused
from streamapp.errors import BrokerError, ProcessorStateError
from streamapp.records import RecordBatch
from streamapp.state.backend import MemoryBackend
from tests.unit.engine.support import TEXT, TEXTS, Sent, commit, feed, task_of

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)
COUNTS: Any = Materialized("counts", key_serde=TEXT, value_serde=LongSerde())


def merging() -> StreamsBuilder:
    builder = StreamsBuilder()
    left = builder.stream("left", **TEXTS)
    left.merge(builder.stream("right", **TEXTS)).to("out", **TEXTS)
    return builder


def counting() -> StreamsBuilder:
    builder = StreamsBuilder(StreamsConfig(statestore_cache_max_bytes=0))
    builder.stream("in", **TEXTS).group_by_key(**TEXTS).count(materialized=COUNTS)
    return builder


def values(sent: Any) -> list[str]:
    return [value for _, value, _ in sent.to("out")]


class TestOrder:
    def test_the_lowest_timestamp_over_all_inputs_comes_first(self) -> None:
        task, sent = task_of(merging())
        feed(task, "left", [("k", "l1", 1), ("k", "l4", 4), ("k", "l6", 6)])
        feed(task, "right", [("k", "r2", 2), ("k", "r3", 3), ("k", "r5", 5)])
        assert task.process() == 6
        assert values(sent) == ["l1", "r2", "r3", "l4", "r5", "l6"]

    def test_a_partition_keeps_its_order_whatever_its_timestamps(self) -> None:
        task, sent = task_of(merging())
        feed(task, "left", [("k", "l9", 9), ("k", "l1", 1)])
        feed(task, "right", [("k", "r5", 5)])
        task.process()
        assert values(sent) == ["r5", "l9", "l1"]

    def test_equal_timestamps_take_turns(self) -> None:
        task, sent = task_of(merging())
        feed(task, "left", [("k", "l", 1)] * 2)
        feed(task, "right", [("k", "r", 1)] * 2)
        task.process()
        assert values(sent) == ["l", "r", "l", "r"]

    def test_an_empty_input_holds_the_others_back_until_it_is_caught_up(self) -> None:
        task, sent = task_of(merging())
        feed(task, "left", [("k", "l5", 5)])
        assert task.process(caught_up=[LEFT]) == 0
        feed(task, "right", [("k", "r1", 1)])
        assert task.process(caught_up=[]) == 1
        assert task.process(caught_up=[RIGHT]) == 1
        assert values(sent) == ["r1", "l5"]

    def test_a_caught_up_input_is_waited_for_as_long_as_max_task_idle_says(self) -> None:
        now = [1000]
        task, _ = task_of(merging(), config=StreamsConfig("app", max_task_idle_ms=50), now=now)
        feed(task, "left", [("k", "l", 5)])
        assert task.process(caught_up=[RIGHT]) == 0
        now.append(1049)
        assert task.process(caught_up=[RIGHT]) == 0
        now.append(1050)
        assert task.process(caught_up=[RIGHT]) == 1

    def test_time_without_a_look_for_records_ends_no_wait(self) -> None:
        """A worker polled, worked a second on another task, and then took the wait for a record as over."""
        now = [1000]
        task, _ = task_of(merging(), config=StreamsConfig("app", max_task_idle_ms=50), now=now)
        feed(task, "left", [("k", "l", 5)])
        now.append(2000)
        assert task.process(caught_up=[RIGHT], known_ms=1000) == 0
        assert task.process(caught_up=[RIGHT], known_ms=1049) == 0
        assert task.process(caught_up=[RIGHT], known_ms=1050) == 1

    def test_what_an_extractor_drops_lets_nothing_overtake(self) -> None:
        builder = StreamsBuilder()
        left = builder.stream("left", **TEXTS)
        right = builder.stream(
            "right", **TEXTS, timestamp_extractor=lambda record, partition_time: int(record.value)
        )
        left.merge(right).to("out", **TEXTS)
        task, sent = task_of(builder, config=StreamsConfig("app", max_task_idle_ms=1_000))
        feed(task, "left", [("k", "waits", 100)])
        feed(task, "right", [("k", "-1", 5)])
        task.process(caught_up=[RIGHT])
        feed(task, "right", [("k", "50", 5)], offset=1)
        task.process(caught_up=[RIGHT])
        assert values(sent) == ["50"]

    @pytest.mark.parametrize("extractor", [None, lambda record, partition_time: record.timestamp])
    def test_a_serde_is_bound_once_for_each_input(self, extractor: Any) -> None:
        # Binding may generate code, which takes a thousand times as long as to decode a record.
        bound: list[str] = []

        class Noting(StringSerde):
            def bind(self, topic: str, is_key: bool) -> Noting:
                bound.append(topic)
                return self

        builder = StreamsBuilder()
        left = builder.stream("left", key_serde=TEXT, value_serde=Noting(), timestamp_extractor=extractor)
        left.merge(builder.stream("right", **TEXTS)).foreach(lambda key, value: None)
        task, _ = task_of(builder)
        for at in range(4):
            feed(task, "left", [("k", "l", at)], offset=at)
            feed(task, "right", [("k", "r", at)], offset=at)
        assert task.process() == 8
        assert bound == ["left"]

    def test_no_more_than_max_records(self) -> None:
        task, sent = task_of(counting())
        feed(task, "in", [("k", "v", n) for n in range(10)])
        assert task.process(4) == 4
        assert task.positions == {TopicPartition("in", 0): 4}
        assert task.buffered == {TopicPartition("in", 0): 6}
        assert task.process() == 6
        assert not sent.records


class Ticking(Processor[Any, Any, Any, Any]):
    """Forwards the times at which it is called."""

    anchors: ClassVar[dict[str, Any]] = {}

    def init(self, context: Any) -> None:
        self.context = context
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick, **self.anchors)

    def process(self, record: Record) -> None: ...

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))


class TestPunctuators:
    @pytest.mark.parametrize(
        ("anchors", "ticks"),
        [
            ({}, ["1", "12", "25", "50", "61"]),
            ({"start_time": 7}, ["12", "25", "50", "57"]),
            ({"start_time": datetime.fromtimestamp(0.03, UTC)}, ["50", "61"]),
        ],
    )
    def test_a_start_time_anchors_them(
        self, monkeypatch: pytest.MonkeyPatch, anchors: dict[str, Any], ticks: list[str]
    ) -> None:
        monkeypatch.setattr(Ticking, "anchors", anchors)
        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).process(Ticking).to("out", **TEXTS)
        task, sent = task_of(builder)
        feed(task, "in", [("k", "v", time) for time in (1, 12, 25, 50, 51, 57, 61)])
        task.process()
        assert values(sent) == ticks

    @pytest.mark.parametrize(("start", "first"), [(0, 110), (95, 105), (100, 100), (101, 101), (108, 108)])
    def test_a_start_in_the_past_is_one_of_the_times_that_are_over(self, start: int, first: int) -> None:
        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).to("out", **TEXTS)
        task, _ = task_of(builder, now=(100,))
        schedule = task.schedule("n", 10, PunctuationType.WALL_CLOCK_TIME, lambda now: None, start)
        assert schedule.time == first

    @pytest.mark.parametrize("start", [-1, "noon", 1.5])
    def test_a_start_that_is_no_time_is_refused(self, monkeypatch: pytest.MonkeyPatch, start: Any) -> None:
        monkeypatch.setattr(Ticking, "anchors", {"start_time": start})
        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).process(Ticking)
        with pytest.raises(StreamsError, match="starts at a datetime or ms since the epoch"):
            task_of(builder)

    def test_there_is_no_record_in_one(self) -> None:
        seen: list[tuple[Any, ...]] = []

        def topic_of(key: str, value: str, context: Any) -> str:
            seen.append((context.topic, context.partition, context.offset))
            raise RuntimeError("it went off")

        def handler(context: Any, error: Exception) -> Any:
            seen.append((context.topic, context.partition, context.offset))
            return "continue"

        config = StreamsConfig("app", processing_exception_handler=handler, dead_letter_queue_topic="dead")
        builder = StreamsBuilder(config)
        builder.stream("in", **TEXTS).process(Ticking).to(topic_of, **TEXTS)
        task, sent = task_of(builder, config=config)
        feed(task, "in", [("k", "v", 1)])
        task.process()
        assert seen == [(None, -1, -1), ("", -1, -1)]
        headers = dict(sent.records[-1].headers)
        where = [headers[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")]
        assert where == [None, b"-1", b"-1"]


class TestFailures:
    @staticmethod
    def failing(config: StreamsConfig | None = None) -> tuple[Any, Any]:
        def fail_on_boom(value: str) -> str:
            if value == "boom":
                raise RuntimeError("it went off")
            return value

        builder = StreamsBuilder()
        stream = builder.stream("in", **TEXTS)
        stream.map_values(fail_on_boom, name="careful").to("out", **TEXTS)
        stream.to("copy", **TEXTS)
        return task_of(builder, config=config)

    def test_a_failure_names_operator_topic_partition_and_offset(self) -> None:
        task, _ = self.failing()
        feed(task, "in", [("k", "fine", 1), ("k", "boom", 2)], offset=7)
        with pytest.raises(
            StreamsError, match=r"careful .*in-0 at offset 8 failed: RuntimeError: it went off"
        ):
            task.process()

    def test_what_was_processed_before_a_failure_counts_and_nothing_more(self) -> None:
        task, sent = self.failing()
        feed(task, "in", [("k", "fine", 1), ("k", "boom", 2), ("k", "after", 3)])
        with pytest.raises(StreamsError):
            task.process()
        assert task.positions == {TopicPartition("in", 0): 1}
        assert values(sent) == ["fine"]

    @pytest.mark.parametrize("handler", ["fail", "continue"])
    def test_what_fails_behind_a_cache_names_its_operator_and_its_record(self, handler: Any) -> None:
        def fail(count: int) -> str:
            raise RuntimeError("it went off")

        config = StreamsConfig("app", processing_exception_handler=handler, dead_letter_queue_topic="dead")
        builder = StreamsBuilder(config)
        counts = builder.stream("in", **TEXTS).group_by_key().count()
        counts.to_stream().map_values(fail, name="careful").to("out", **TEXTS)
        task, sent = task_of(builder, config=config)
        feed(task, "in", [("a", "v", 1), ("b", "v", 2)], offset=7)
        assert task.process() == 2
        if handler == "fail":
            with pytest.raises(
                StreamsError, match=r"careful .*in-0 at offset 7 failed: RuntimeError: it went"
            ):
                task.flush()
        else:
            task.flush()
        offsets = [dict(r.headers)["__streams.errors.offset"] for r in sent.records if r.topic == "dead"]
        assert offsets == ([b"7"] if handler == "fail" else [b"7", b"8"])

    @pytest.mark.parametrize(
        ("serde", "fine", "bad"),
        [
            (TEXT, "é", "half a pair: \ud83d"),
            (LongSerde(), 2**63 - 1, 2**63),
            (IntegerSerde(), 0, -(2**31) - 1),
        ],
    )
    @pytest.mark.parametrize("cache", [0, 10_000_000])
    def test_a_value_without_bytes_fails_where_it_is_put(
        self, serde: Any, fine: Any, bad: Any, cache: int
    ) -> None:
        config = StreamsConfig(
            "app", processing_exception_handler="continue", statestore_cache_max_bytes=cache
        )
        builder = StreamsBuilder(config)
        stored = Materialized("last", key_serde=TEXT, value_serde=serde)
        grouped = builder.stream("in", **TEXTS).group_by_key()
        last = grouped.aggregate(
            lambda: fine, lambda key, text, old: bad if text == "bad" else old, materialized=stored
        )
        last.to_stream().foreach(lambda key, value: None)
        task, _ = task_of(builder, config=config)
        feed(task, "in", [("k", "good", 1), ("k", "bad", 2), ("k", "good", 3)])
        assert task.process() == 3
        assert task.metrics.dropped_records == 1
        task.flush()
        task.persist({})
        assert task.store("last").get("k") == (fine, 3)

    def test_continue_drops_the_record_at_the_failing_node_only(self) -> None:
        task, sent = self.failing(StreamsConfig("app", processing_exception_handler="continue"))
        feed(task, "in", [("k", "boom", 1), ("k", "after", 2)])
        assert task.process() == 2
        assert values(sent) == ["after"]
        assert [v for _, v, _ in sent.to("copy")] == ["boom", "after"]
        assert task.metrics.dropped_records == 1

    def test_a_sink_right_behind_a_source_is_no_handler_s_business(self) -> None:
        def topic_of(key: Any, value: str, context: Any) -> str:
            return {"good": "out"}[value]

        for behind_an_operator in (True, False):
            builder = StreamsBuilder()
            stream = builder.stream("in", **TEXTS)
            (stream.peek(lambda key, value: None) if behind_an_operator else stream).to(topic_of, **TEXTS)
            config = StreamsConfig(
                "app", processing_exception_handler="continue", dead_letter_queue_topic="dead"
            )
            task, sent = task_of(builder, config=config)
            feed(task, "in", [("k", "bad", 1), ("k", "good", 2)])
            if behind_an_operator:
                task.process()
                assert sorted(record.topic for record in sent.records) == ["dead", "out"]
            else:
                with pytest.raises(
                    StreamsError, match=r"in-0 at offset 0 failed: KeyError: 'bad'; no exception handler"
                ):
                    task.process()
                assert not sent.records

    def refusing(
        self, config: StreamsConfig, *, final: bool = False, direct: bool = False
    ) -> tuple[Any, Sent]:
        """Brokers take no result "late"; the clock says 1000."""

        class Refusing(Sent):
            def send(
                self, topic: str, key: Any, value: Any, timestamp: Any, headers: Any, partition: Any
            ) -> None:
                if topic == "out" and value == b"late":
                    raise ResultRefused("ahead of time", "look at the clock", final=final)
                super().send(topic, key, value, timestamp, headers, partition)

        builder = StreamsBuilder()
        target: Any = "out" if direct else lambda key, value, context: "out"
        builder.stream("in", **TEXTS).to(target, name="sink", **TEXTS)
        task, sent = task_of(builder, config=config, collector=Refusing(), now=[1_000])
        feed(task, "in", [("k", "a", 1), ("k", "late", 5_000), ("k", "b", 2)], offset=7)
        return task, sent

    @pytest.mark.parametrize("direct", [True, False])
    def test_a_result_that_brokers_refuse_is_named_with_its_record(self, direct: bool) -> None:
        task, sent = self.refusing(StreamsConfig("app"), direct=direct)
        with pytest.raises(
            StreamsError,
            match=r"sink \(task 0_0\): record of in-0 at offset 8 gave a result that out does not take: "
            "ResultRefused: ahead of time; look at the clock",
        ):
            task.process()
        assert values(sent) == ["a"]

    def test_a_handler_is_asked_once_about_a_result_for_several_partitions(self) -> None:
        class Refusing(Sent):
            def send(self, *sent: Any) -> None:
                raise ResultRefused("too large", "make it smaller")

        asked = []

        def handler(context: Any, error: Exception) -> Any:
            asked.append(context.offset)
            return "continue"

        builder = StreamsBuilder(StreamsConfig("app", production_exception_handler=handler))
        builder.stream("in", **TEXTS).to("out", partitioner=lambda *_: {0, 1, 2}, **TEXTS)
        task, _ = task_of(builder, collector=Refusing())
        feed(task, "in", [("k", "a", 1), ("k", "b", 2)])
        assert task.process() == 2
        assert (asked, task.metrics.dropped_results) == ([0, 1], 2)

    def test_a_handler_goes_on_without_a_result_that_brokers_refuse(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        asked = []

        def handler(context: Any, error: Exception) -> Any:
            asked.append((context.processor, context.topic, context.offset, context.value, str(error)))
            return "continue"

        config = StreamsConfig("app", production_exception_handler=handler, dead_letter_queue_topic="dead")
        task, sent = self.refusing(config)
        assert task.process() == 3
        assert asked == [("sink", "in", 8, b"late", "ahead of time")]
        assert [value for _, value, _ in sent.to("out")] == ["a", "b"]
        assert sent.to("dead") == [("k", "late", 1_000)]  # which brokers take
        assert (task.metrics.dropped_results, task.metrics.dropped_records) == (1, 0)
        (line,) = caplog.messages
        assert "offset 8 gave a result that out does not take" in line

    def test_a_refusal_may_be_no_handler_s_business(self) -> None:
        task, _ = self.refusing(StreamsConfig("app", production_exception_handler="continue"), final=True)
        with pytest.raises(StreamsError, match="out does not take"):
            task.process()

    @pytest.mark.parametrize("error", [ProcessorStateError("the disk"), BrokerError("the brokers")])
    def test_what_is_not_the_record_s_fault_goes_past_the_handler(self, error: StreamsError) -> None:
        def fail(value: str) -> str:
            raise error

        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).map_values(fail).to("out", **TEXTS)
        task, sent = task_of(builder, config=StreamsConfig("app", processing_exception_handler="continue"))
        feed(task, "in", [("k", "v", 1)])
        with pytest.raises(type(error)):
            task.process()
        assert not task.positions
        assert not values(sent)

    def test_a_handler_decides_for_each_record(self) -> None:
        asked = []

        def handler(context: Any, error: Exception) -> Any:
            asked.append((context.topic, context.offset, context.processor, context.value, str(error)))
            return "continue"

        task, _ = self.failing(StreamsConfig("app", processing_exception_handler=handler))
        feed(task, "in", [("k", "boom", 1)], offset=3)
        task.process()
        assert asked == [("in", 3, "careful", b"boom", "it went off")]

    def test_a_handler_that_answers_nonsense_stops(self) -> None:
        task, _ = self.failing(StreamsConfig("app", processing_exception_handler=lambda c, e: "perhaps"))  # type: ignore[arg-type, return-value]
        feed(task, "in", [("k", "boom", 1)])
        with pytest.raises(StreamsError, match="must return \"fail\", .* not 'perhaps'"):
            task.process()

    def test_a_dead_letter_has_the_record_and_says_what_happened(self) -> None:
        config = StreamsConfig("app", processing_exception_handler="continue", dead_letter_queue_topic="dead")
        task, sent = self.failing(config)
        feed(task, "in", [("k", "boom", 5)], offset=9, headers=(("own", b"1"),))
        task.process()
        (dead,) = [r for r in sent.records if r.topic == "dead"]
        assert (dead.key, dead.value, dead.timestamp) == (b"k", b"boom", 5)
        headers = dict(dead.headers)
        stack = headers.pop("__streams.errors.stacktrace").decode()
        assert stack.startswith("Traceback")
        assert stack.endswith("RuntimeError: it went off\n")
        assert headers == {
            "own": b"1",
            "__streams.errors.exception": b"RuntimeError",
            "__streams.errors.message": b"it went off",
            "__streams.errors.topic": b"in",
            "__streams.errors.partition": b"0",
            "__streams.errors.offset": b"9",
            "__streamapp.errors.application": b"app",
            "__streamapp.errors.version": b"",
            "__streamapp.errors.task": b"0_0",
            "__streamapp.errors.operator": headers["__streamapp.errors.operator"],
            "__streamapp.errors.what": b"failed",
            "__streamapp.errors.timestamp": b"5",
            "__streamapp.errors.attempt": b"1",
        }
        assert headers["__streamapp.errors.operator"] == b"careful"

    def test_undecodable_bytes_fail_or_are_dropped_as_configured(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key_serde=TEXT, value_serde=LongSerde()).to("out", **TEXTS)
        task, _ = task_of(builder)
        feed(task, "in", [("k", b"short", 1)])
        with pytest.raises(StreamsError, match="offset 0 could not be deserialized"):
            task.process()

        task, _ = task_of(builder, config=StreamsConfig("app", deserialization_exception_handler="continue"))
        feed(task, "in", [("k", b"short", 1)])
        assert task.process() == 1
        assert task.positions == {TopicPartition("in", 0): 1}
        assert task.metrics.dropped_records == 1

    def test_a_record_that_two_operators_drop_is_lost_once(self) -> None:
        builder = StreamsBuilder(StreamsConfig("app", processing_exception_handler="continue"))
        source = builder.stream("in", **TEXTS)
        for name in ("one", "two"):
            source.map_values(int, name=name).foreach(lambda *_: None)
        task, _ = task_of(builder, config=StreamsConfig("app", processing_exception_handler="continue"))
        feed(task, "in", [("k", "1", 1), ("k", "boom", 2), ("k", "boom", 3)])
        task.process()
        assert (task.metrics.dropped_records, task.metrics.lost_records) == (4, 2)

    @pytest.mark.parametrize("letters", [None, "dead"])
    def test_what_a_handler_goes_on_without_is_logged(
        self, letters: str | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = StreamsConfig(
            "app",
            deserialization_exception_handler="continue",
            processing_exception_handler="continue",
            production_exception_handler="continue",
            dead_letter_queue_topic=letters,
        )
        without = "; going on without it" + (
            f", once brokers have its dead letter in {letters}" if letters else ""
        )
        task, _ = self.failing(config)
        feed(task, "in", [("k", "fine", 1), ("k", "boom", 2), ("k", b"\xff", 3)], offset=7)
        task.process()
        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).map_values(lambda value: 7, name="number").to(
            "out", name="sink", **TEXTS
        )
        task, _ = task_of(builder, config=config)
        feed(task, "in", [("k", "v", 1)])
        task.process()
        assert {record.levelname for record in caplog.records} == {"WARNING"}
        processing, deserialization, production = caplog.messages
        assert processing == (
            f"careful (task 0_0): record of in-0 at offset 8 failed: RuntimeError: it went off{without}"
        )
        assert "record of in-0 at offset 9 could not be deserialized: " in deserialization
        assert deserialization.endswith(without)
        assert production.startswith(
            "sink (task 0_0): record of in-0 at offset 0 gave a result that cannot be serialized for topic out: "
        )
        assert len({record.kind for record in caplog.records}) == 3  # type: ignore[attr-defined]

    @pytest.mark.parametrize("before", ["merge", "branch", "join"])
    def test_an_operator_that_only_hands_records_on_is_not_blamed(self, before: str) -> None:
        builder = StreamsBuilder()
        stream, other = builder.stream("in", **TEXTS), builder.stream("other", **TEXTS)
        if before == "merge":
            stream = stream.merge(other, name="before")
        elif before == "branch":
            stream = stream.split("be").branch(lambda key, value: True, "fore").no_default_branch()["before"]
        else:
            window = JoinWindows.of_time_difference_with_no_grace(0)
            stream = stream.outer_join(
                other, lambda left, right: left, window, stream_joined=StreamJoined("before")
            )
        stream.map_values(int, name="parse").foreach(lambda key, value: None)
        task, _ = task_of(builder)
        feed(task, "in", [("k", "one", 1), ("k", "2", 9)])
        with pytest.raises(StreamsError, match="^parse "):
            task.process()

    def test_an_operator_with_the_name_of_a_function_of_its_kind_is_not_blamed(self) -> None:
        """The node `matching` had the same code as the function of all filters, so it was blamed for the others."""
        builder = StreamsBuilder()
        stream = builder.stream("in", **TEXTS).filter(lambda key, value: bool(int(value)), name="numbers")
        stream.filter(lambda key, value: True, name="matching").foreach(lambda key, value: None)
        task, _ = task_of(builder)
        feed(task, "in", [("k", "one", 1), ("k", "2", 9)])
        with pytest.raises(StreamsError, match="^numbers "):
            task.process()

    def test_the_reason_does_not_make_another_kind_of_line(self, caplog: pytest.LogCaptureFixture) -> None:
        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).map_values(int, name="parse").foreach(lambda key, value: None)
        task, _ = task_of(builder, config=StreamsConfig("app", processing_exception_handler="continue"))
        feed(task, "in", [("k", "one", 1), ("k", "two", 2)])
        task.process()
        first, second = caplog.records
        assert first.getMessage() != second.getMessage()
        assert first.kind == second.kind  # type: ignore[attr-defined]

    def test_what_only_counts_as_dropped_has_no_line(self, caplog: pytest.LogCaptureFixture) -> None:
        task, _ = task_of(counting())
        feed(task, "in", [(None, "v", 1)])
        task.process()
        assert task.metrics.dropped_records == 1
        assert not caplog.records

    def test_a_record_without_timestamp_is_refused_with_the_remedy(self) -> None:
        task, _ = self.failing()
        feed(task, "in", [("k", "v", -1)])
        with pytest.raises(StreamsError, match="timestamp_extractor"):
            task.process()

    def test_records_of_a_topic_it_does_not_read_are_refused(self) -> None:
        task, _ = self.failing()
        with pytest.raises(StreamsError, match="does not read; it reads in"):
            feed(task, "elsewhere", [("k", "v", 1)])


class TestInit:
    @pytest.mark.parametrize(
        ("error", "said"),
        [(KeyError("TOKEN"), "KeyError: 'TOKEN'"), (StreamsError("not connected"), "not connected")],
    )
    def test_an_exception_names_the_processor(self, error: Exception, said: str) -> None:
        class Unready(Processor):
            def init(self, context: Any) -> None:
                raise error

            def process(self, record: Record) -> None: ...

        builder = StreamsBuilder()
        builder.stream("in", **TEXTS).process(Unready, name="asks")
        with pytest.raises(StreamsError) as raised:
            task_of(builder)
        assert str(raised.value) == f"failed to initialize processor asks: {said}"
        assert raised.value.__cause__ is error


class TestClose:
    def test_an_exception_names_the_processor_and_everything_else_is_closed(self) -> None:
        """The next processors and the state stayed open, and the error did not say whose it was."""
        closed: list[str] = []

        def closing(name: str, error: Exception | None = None) -> type[Processor]:
            class Closing(Processor):
                def process(self, record: Record) -> None:
                    self.context.forward(record)

                def close(self) -> None:
                    closed.append(name)
                    if error is not None:
                        raise error

            return Closing

        builder = StreamsBuilder()
        stream = builder.stream("in", **TEXTS).process(closing("first"), name="first")
        stream = stream.process(closing("asks", ConnectionError("gone")), name="asks")
        stream.process(closing("last"), name="last")
        task, _ = task_of(builder)
        task._stores.close = lambda: closed.append("state")  # type: ignore[method-assign]
        with pytest.raises(StreamsError, match=r"failed to close processor asks: ConnectionError: gone"):
            task.close()
        assert closed == ["first", "asks", "last", "state"]


class Ticker(Processor):
    """Notes when it is called, and can be told to stop."""

    def __init__(self, type: PunctuationType, calls: list[int]) -> None:
        self._type, self._calls = type, calls

    def init(self, context: Any) -> None:
        super().init(context)
        self.schedule = context.schedule(10, self._type, self._calls.append)

    def process(self, record: Record) -> None:
        if record.value == "stop":
            self.schedule.cancel()


async def _later(now: int) -> None: ...


class TestPunctuation:
    @staticmethod
    def ticking(type: PunctuationType, now: list[int]) -> tuple[Any, list[int]]:
        calls: list[int] = []
        topology = Topology().add_source("in", "in", **TEXTS)
        topology.add_processor("ticker", lambda: Ticker(type, calls), "in")
        return task_of(topology, now=now)[0], calls

    def test_stream_time_fires_with_the_first_record_and_then_once_per_interval(self) -> None:
        task, calls = self.ticking(PunctuationType.STREAM_TIME, [0])
        feed(task, "in", [("k", "v", t) for t in (3, 9, 10, 11, 45, 44, 50)])
        task.process()
        assert calls == [3, 10, 45, 50]

    def test_wall_clock_fires_one_interval_after_the_start(self) -> None:
        task, calls = self.ticking(PunctuationType.WALL_CLOCK_TIME, [100])
        for now in (105, 110, 111, 155, 159, 160):
            task.punctuate_wall_clock(now)
        assert calls == [110, 155, 160]

    @pytest.mark.parametrize(
        ("punctuator", "words"),
        [
            (None, r"schedule\(\) of ticker needs a punctuator of the time in ms, got None"),
            (lambda: None, "it is called with 1 argument, but <lambda> takes"),
            (_later, "_later is a coroutine function"),
        ],
    )
    def test_what_cannot_be_called_is_refused_when_it_is_scheduled(self, punctuator: Any, words: str) -> None:
        class Scheduling(Ticker):
            def init(self, context: Any) -> None:
                context.schedule(10, PunctuationType.WALL_CLOCK_TIME, punctuator)

        topology = Topology().add_source("in", "in", **TEXTS)
        topology.add_processor("ticker", lambda: Scheduling(PunctuationType.WALL_CLOCK_TIME, []), "in")
        with pytest.raises(StreamsError, match=words):
            task_of(topology)

    def test_a_clock_that_is_set_back_holds_no_punctuator_up(self) -> None:
        """The next call came only when the clock had reached the old time again."""
        now = [1_000_000]
        task, calls = self.ticking(PunctuationType.WALL_CLOCK_TIME, now)
        task.punctuate_wall_clock(1_000_010)
        for after in (5_003, 1_003):
            now.append(after)
            task.clock_jumped(after - now[-2])
            for later in (0, 7, 16, 17):
                task.punctuate_wall_clock(after + later)
        assert calls == [1_000_010, 5_010, 5_020, 1_010, 1_020]

    def test_a_clock_that_is_set_back_calls_no_punctuator_before_its_start(self) -> None:
        calls: list[int] = []
        task, _ = task_of(Topology().add_source("in", "in", **TEXTS), now=[500])
        task.schedule("ticker", 10, PunctuationType.WALL_CLOCK_TIME, calls.append, 600)
        task.clock_jumped(-100)
        for now in (410, 599, 600, 610):
            task.punctuate_wall_clock(now)
        assert calls == [600, 610]

    def test_a_cancelled_punctuator_is_not_called_again(self) -> None:
        task, calls = self.ticking(PunctuationType.STREAM_TIME, [0])
        feed(task, "in", [("k", "v", 1), ("k", "stop", 2), ("k", "v", 99)])
        task.process()
        assert calls == [1]

    def test_punctuators_that_are_due_together_come_in_the_order_of_javas_queue(self) -> None:
        calls: list[str] = []

        class Named(Ticker):
            def __init__(self, name: str) -> None:
                super().__init__(PunctuationType.STREAM_TIME, [])
                self._calls = type("Calls", (), {"append": lambda _, time: calls.append(name)})()

            def process(self, record: Record) -> None:
                self.context.forward(record)

        topology = Topology().add_source("in", "in", **TEXTS)
        for name, parent in (("first", "in"), ("second", "first"), ("third", "second")):
            topology.add_processor(name, lambda name=name: Named(name), parent)
        task, _ = task_of(topology)
        feed(task, "in", [("k", "v", t) for t in (5, 15, 25, 95)])
        task.process()
        # What java.util.PriorityQueue gives for PunctuationQueue's moves.
        assert ["".join(name[0] for name in calls[n : n + 3]) for n in (0, 3, 6, 9)] == [
            "fts",
            "tsf",
            "sft",
            "fts",
        ]


class TestCommit:
    def test_reads_see_writes_at_once_and_the_backend_sees_them_at_persist(self) -> None:
        backend = MemoryBackend()
        task, _ = task_of(counting(), backend=backend)
        feed(task, "in", [("a", "v", 1), ("a", "v", 2)])
        task.process()
        assert task.store("counts").get("a") == (2, 2)
        task.flush()
        assert list(backend.table("counts").range(None, None)) == []
        task.persist({TopicPartition("app-counts-changelog", 0): 1})
        assert len(list(backend.table("counts").range(None, None))) == 1
        assert task.changelog_offsets == {"counts": 1}

    def test_the_changelog_gets_the_last_value_per_key_and_commit(self) -> None:
        task, sent = task_of(counting())
        feed(task, "in", [("a", "v", 1), ("b", "v", 2), ("a", "v", 3)])
        task.process()
        commit(task)
        assert [(r.key, r.value, r.timestamp, r.partition) for r in sent.records] == [
            (b"a", (2).to_bytes(8, "big"), 3, 0),
            (b"b", (1).to_bytes(8, "big"), 2, 0),
        ]
        commit(task)
        assert len(sent.records) == 2

    def test_with_log_each_write_every_write_is_a_changelog_record(self) -> None:
        task, sent = task_of(counting(), log_each_write=True)
        feed(task, "in", [("a", "v", 1), ("a", "v", 3)])
        task.process()
        assert len(sent.records) == 2

    @pytest.mark.parametrize(("max_bytes", "emitted"), [(0, 2), (10_000, 1)])
    def test_the_plan_decides_whether_tables_are_cached(self, max_bytes: int, emitted: int) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in", **TEXTS).group_by_key(**TEXTS)
        grouped.count().to_stream().to("out", key_serde=TEXT, value_serde=LongSerde())
        config = StreamsConfig("app", statestore_cache_max_bytes=max_bytes)
        task, sent = task_of(builder, config=config)
        feed(task, "in", [("a", "v", 1), ("a", "v", 3)])
        task.process()
        task.flush()
        assert len([record for record in sent.records if record.topic == "out"]) == emitted

    def test_a_task_restored_from_its_changelog_goes_on_where_it_was(self) -> None:
        task, sent = task_of(counting())
        feed(task, "in", [("a", "v", 1), ("b", "v", 2), ("a", "v", 3)])
        task.process()
        commit(task)
        log = sent.records

        again, _ = task_of(counting(), init=False)
        again.restore(
            "counts",
            RecordBatch(
                [r.key for r in log], [r.value for r in log], [r.timestamp or 0 for r in log], [0, 1]
            ),
        )
        again.init()
        assert again.changelog_offsets == {"counts": 2}
        feed(again, "in", [("a", "v", 9)], offset=3)
        again.process()
        assert dict(again.store("counts").all()) == {"a": (3, 9), "b": (1, 2)}

    def test_late_records_stay_late_after_a_restart(self) -> None:
        """Invariant I9: what decides lateness survives, in the metadata of the committed offsets."""

        def hourly() -> StreamsBuilder:
            builder = StreamsBuilder(StreamsConfig(statestore_cache_max_bytes=0))
            windows = TimeWindows.of_size_with_no_grace(10)
            grouped = builder.stream("in", **TEXTS).group_by_key(**TEXTS).windowed_by(windows)
            grouped.count(
                materialized=Materialized("w", key_serde=TEXT, value_serde=LongSerde(), retention=1000)
            )
            return builder

        task, _ = task_of(hourly())
        feed(task, "in", [("a", "v", 100)])
        task.process()
        metadata = task.commit_metadata
        assert metadata.keys() == {TopicPartition("in", 0)}

        again, _ = task_of(hourly(), init=False)
        again.continue_from(metadata)
        again.init()
        feed(again, "in", [("a", "v", 5)], offset=1)
        again.process()
        assert again.metrics.dropped_records == 1
        assert again.stream_time == 100

    def test_a_source_topic_that_serves_as_changelog_gets_no_second_copy(self) -> None:
        config = StreamsConfig("app", topology_optimization="all", statestore_cache_max_bytes=0)
        builder = StreamsBuilder(config)
        builder.table("names", materialized=Materialized("names"), **TEXTS)
        task, sent = task_of(builder, config=config)
        feed(task, "names", [("a", "x", 1)], offset=4)
        task.process()
        commit(task)
        assert sent.records == []
        assert task.changelog_offsets == {"names": 5}
