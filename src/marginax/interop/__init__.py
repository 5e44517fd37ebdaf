"""To and from neighbouring libraries, one module each; none is imported before it is needed."""
