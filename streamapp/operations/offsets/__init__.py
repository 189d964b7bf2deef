"""``streamapp offsets``: shows the committed offsets of a group, and moves or copies them."""
