"""Speed and memory, always as ratios measured in one run: machines differ, ratios travel."""
