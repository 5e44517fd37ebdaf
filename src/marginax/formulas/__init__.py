"""Mixed models from a formula and a table: `mx.mixed("y ~ x + (x | g)", data)`."""
