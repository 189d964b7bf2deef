"""Runs the cases of SPEC.md on streamapp and compares the outcome with what Kafka Streams did."""
