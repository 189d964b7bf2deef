"""Work around applications: their offsets, what would make them lose or stall, the rights that they need."""
