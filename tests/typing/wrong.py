"""What a type checker has to refuse: each line that ends in ``# error`` and no other."""

from __future__ import annotations

from streamapp import (
    JoinWindows,
    LongSerde,
    Processor,
    ReadOnlyKeyValueStore,
    Record,
    Stores,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
    TopologyTestDriver,
)


class Lengths(Processor[str, str, str, int]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)  # error
        self.context.forward(record.with_value(len(record.value)))


SEEN = Stores.key_value("seen", StringSerde(), LongSerde())


class Seen(Processor[str, str, str, int]):
    stores = (SEEN,)

    def process(self, record: Record[str, str]) -> None:
        seen = self.context.get_state_store(SEEN)
        seen.put(record.key, len(record.value))
        seen.put(5, len(record.value))  # error
        seen.put(record.key, record.value)  # error
        seen.get(b"key")  # error
        seen.fetch(record.key)  # error
        look(seen)


def look(reads: ReadOnlyKeyValueStore[str, int]) -> None:
    reads.put("key", 5)  # error


def drive(driver: TopologyTestDriver) -> None:
    driver.create_input_topic("in", StringSerde(), LongSerde()).pipe_input("a", "b")  # error


def describe(builder: StreamsBuilder) -> None:
    words = builder.stream("words", key_serde=StringSerde(), value_serde=StringSerde())
    numbers = builder.table("numbers", key_serde=StringSerde(), value_serde=LongSerde())
    words.map_values(lambda word: word.no_such_method())  # error
    words.filter(lambda word: True)  # error
    words.to("out", value_serde=LongSerde())  # error
    words.join(numbers, lambda word, number: word + number)  # error
    words.join(words, lambda one, other: one + other)  # error
    words.join(numbers, lambda word, number: word, JoinWindows.of_time_difference_with_no_grace(5))  # error
    words.group_by_key().windowed_by(5)  # error
    words.group_by_key().count().late_records()  # error
    words.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count().late_records()
    words.merge(numbers)  # error
    words.process(Lengths).to("out", value_serde=StringSerde())  # error
    words.process(Lengths).process(Lengths)  # error
