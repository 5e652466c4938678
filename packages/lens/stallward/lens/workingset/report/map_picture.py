"""The picture of a reference map: an image of one bit for each region and step of time. Pure."""

from __future__ import annotations

import base64
import io
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stallward.evaluation.report.svg import Scale, line, linear_ticks, svg, tag, text
from stallward.evaluation.report.text import short_count
from stallward.lens.workingset.reference_map import WHOLE, AddressRange, ReferenceMap

_LEFT: Final = 128.0
_WIDTH: Final = 1040.0
_HEIGHT: Final = 460.0
_BELOW: Final = 46.0
_ROWS: Final = 1200
"""An image has at most so many rows; several regions share one where there are more."""
_LABEL_PIXELS: Final = 13.0
_INK: Final = (0, 114, 178)


def map_picture(drawn: ReferenceMap, number: int, zoom: AddressRange, unit: str) -> str:
    """The map of one class as SVG.

    Without a zoom the regions that were touched stand on each other without the gaps between them,
    because at full range nothing can be seen. In a zoom the axis of addresses is linear.

    Args:
        drawn: The map.
        number: The class.
        zoom: The range of addresses that was asked for.
        unit: What time is counted in.
    """
    touched = drawn.of_class(number)
    if zoom == WHOLE:
        places = np.arange(drawn.addresses.size)
        height = max(drawn.addresses.size, 1)
        labels = _gap_labels(drawn)
    else:
        first = zoom.begin // drawn.region_bytes
        regions = drawn.addresses // np.uint64(drawn.region_bytes)
        places = (regions - np.uint64(first)).astype(np.int64)
        height = -(-zoom.end // drawn.region_bytes) - first
        labels = {
            round(height * share): zoom.begin + int(share * (zoom.end - zoom.begin))
            for share in (0.0, 0.25, 0.5, 0.75, 1.0)
        }
    rows = min(height, _ROWS)
    image = np.zeros((rows, max(touched.shape[1], 1)), dtype=np.bool_)
    np.logical_or.at(image, places * rows // height, touched)
    return _picture(image, drawn, {place / height: a for place, a in labels.items()}, unit)


def _gap_labels(drawn: ReferenceMap) -> dict[int, int]:
    """Row -> address, of the regions that begin after a gap."""
    addresses = drawn.addresses.astype(object)
    return {
        row: int(address)
        for row, address in enumerate(addresses)
        if not row or address - addresses[row - 1] > drawn.region_bytes
    }


def _picture(
    image: NDArray[np.bool_], drawn: ReferenceMap, labels: dict[float, int], unit: str
) -> str:
    bottom = _HEIGHT - _BELOW
    end = float(image.shape[1] * drawn.step)
    x = Scale(low=0.0, high=end, start=_LEFT, end=_WIDTH - 14)
    y = Scale(low=0.0, high=1.0, start=bottom, end=8)
    box = {"x": _LEFT, "y": 8, "width": _WIDTH - 14 - _LEFT, "height": bottom - 8}
    parts = [
        tag("rect", class_="burn", **box),
        tag(
            "image", href=_png(image[::-1]), preserveAspectRatio="none",
            style="image-rendering:pixelated", **box,
        ),
    ]  # fmt: skip
    last = np.inf
    for share, address in sorted(labels.items()):
        at = y(share)
        if last - at >= _LABEL_PIXELS:
            parts.append(line(_LEFT - 5, at, _LEFT, at, class_="rule"))
            parts.append(text(_LEFT - 8, at + 4, f"{address:x}", class_="end"))
            last = at
    parts += [
        text(x(value), bottom + 17, short_count(value), class_="mid")
        for value in linear_ticks(0.0, end)
    ]
    parts.append(text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, f"time, {unit}", class_="mid"))
    return svg(_WIDTH, _HEIGHT, parts, label="Memory reference map")


def _png(image: NDArray[np.bool_]) -> str:
    """An image of ink on nothing, as an address that holds it."""
    picture = Image.fromarray(image.astype(np.uint8))
    picture.putpalette([255, 255, 255, *_INK])
    file = io.BytesIO()
    picture.save(file, format="PNG", transparency=0, optimize=True, bits=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
