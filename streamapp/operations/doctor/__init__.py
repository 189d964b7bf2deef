"""``streamapp doctor``: what would make an application lose, double, starve or stall."""
