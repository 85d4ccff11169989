"""Steps of a trace as inline SVG, with a table of their slices."""
