"""Speed and memory, always as ratios measured in one run: machines differ, ratios travel."""

import os

# What is measured is compiled anew; `start_up` says where it is not.
os.environ.setdefault("MARGINAX_CACHE", "off")
