"""The failure desk: dead letters listed, edited, tried, replayed once or discarded."""
