"""What the page of the latd experiments says in words. Pure."""

from __future__ import annotations

from typing import Final

from stallward.evaluation.replication.latd.steps import ISOLATED

MEANING: Final = {
    ISOLATED: "the detector alone",
    "anon": "a hog allocates anonymous memory without end, touches it once and holds it",
    "anon-again": "a hog touches its anonymous memory again and again",
    "file-once": "a hog reads a mapped file once",
    "file-again": "a hog reads a mapped file again and again",
    "latd": "as anon, with Algorithm 1",
    "latd-again": "as anon-again, with Algorithm 1",
    "latd-cgroup": "as file-again, with Algorithm 2",
    "latd-grow": "as file-again, with Algorithm 3",
}
"""Name of a scenario -> what runs in it."""
NOT_REPEATED: Final = (
    "The laptop with 16 GB, and YOLOv3 on its GPU: here the zone is a 26th of that, and a "
    "detector of about the same shape (mapped weights, an image read for each request) runs on a "
    "CPU. So compare multiples of the latency in isolation rather than milliseconds.",
    "Each of 1,000 images read once: here 150 images are drawn at random, and about an eighth of "
    "them is read for the first time in the measured part.",
    "The program of its listing G.2: it writes once through MAP_PRIVATE, which makes anonymous "
    "pages. The text, pages of a file that are read again and again, is what runs here.",
    "Miss rates by cachestat: it estimates them from four kernel functions, which have changed. "
    "Here every lookup is counted, of the detector alone and of both programs.",
    "Figures of Algorithm 3, and of the swappiness: the thesis has none.",
)
"""What of the thesis could not be repeated, or is not as it was, and why."""
