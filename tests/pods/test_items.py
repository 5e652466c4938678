"""A list of pods is read item by item, without what nobody uses, whatever stands in it."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pods import written

from stallward.kubernetes.errors import PodsError
from stallward.kubernetes.items import MOST_ITEM_BYTES, Items, read_event
from stallward.kubernetes.pod import parse_pod, parse_pods

MIB = 1 << 20


def items_of(content: bytes, chunk: int = 1 << 16) -> tuple[list[Any], Any]:
    file = io.BytesIO(content)
    items = Items(lambda _: file.read(chunk))
    return list(items), items.around


def listed(*items: bytes) -> bytes:
    return b'{"items":[' + b",".join(items) + b'],"metadata":{"resourceVersion":"7"}}'


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def full_pod(**container: Any) -> dict[str, Any]:
    """A pod with everything that is used, and much that is not."""
    value = written("batch", annotations={"a": 'x"],}{[\\'})
    value["metadata"]["managedFields"] = [{"fieldsV1": {"f:metadata": {"f:labels": {".": {}}}}}]
    value["spec"] = {
        "terminationGracePeriodSeconds": 4,
        "volumes": [{"projected": {"sources": [{"configMap": {"items": [{"key": "x"}]}}]}}],
        "containers": [
            {
                "name": "one",
                "args": ["]", "{"],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {"timeoutSeconds": 3, "exec": {"command": ["true"]}},
                **container,
            }
        ],
    }
    value["status"] = {
        "podIP": "10.0.0.7",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": "one", "started": True, "state": {"running": {}}}],
        "conditions": [{"type": "Ready"}],
    }
    return value


def test_all_that_is_used_of_a_pod_is_there_and_the_rest_is_not() -> None:
    value = full_pod(env=[{"name": "A", "value": "b"}] * 1300)
    (item,), around = items_of(listed(encoded(value)))
    assert parse_pod(item) == parse_pod(value)
    assert item["spec"]["containers"][0]["env"] is False
    assert item["metadata"]["managedFields"] is False
    assert around == {"items": [], "metadata": {"resourceVersion": "7"}}
    event = read_event(encoded({"type": "ADDED", "object": value}))
    assert event == {"type": "ADDED", "object": item}


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_wherever_the_pieces_end_the_pods_are_the_same(chunk: int) -> None:
    value = full_pod(env=[{"name": "é\\\\", "value": '\\"'}])
    content = listed(encoded(value), b"null", json.dumps(value, ensure_ascii=False).encode())
    (first, null, last), around = items_of(content, chunk)
    assert parse_pod(first) == parse_pod(last) == parse_pod(value)
    assert isinstance(null, PodsError)
    assert around["metadata"] == {"resourceVersion": "7"}


@pytest.mark.parametrize(
    "odd",
    [
        b"null",
        b"3",
        b'"a, {text"',
        b"[]",
        b"{'a': 1}",
        b'{"a" 1}',
        b'{"a":"' + b"x" * (MOST_ITEM_BYTES + 1) + b'"}',
        b'{"a":' + b'{"b":1},' * 9 + b"}",
    ],
    ids=["null", "number", "text", "array", "quotes", "no colon", "too large", "commas"],
)
def test_an_item_that_cannot_be_read_costs_itself_alone(odd: bytes) -> None:
    good = encoded(written("batch"))
    (first, between, last), _ = items_of(listed(good, odd, good))
    assert first == last == written("batch")
    assert isinstance(between, PodsError)


@pytest.mark.parametrize("mark", [b"[]", b'{"a":}'])
def test_what_is_nested_absurdly_deep_is_dropped_and_its_pod_stays(mark: bytes) -> None:
    deep = mark[:-1] * 20_000 + b"1" + mark[-1:] * 20_000
    content = encoded(written("batch"))[:-1] + b',"deep":' + deep + b"}"
    (item,), _ = items_of(listed(content))
    assert parse_pod(item) == parse_pod(written("batch"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"{", "cut short"),
        (b'{"items":[{"a":1}', "cut short"),
        (b'{"items":["a', "cut short"),
        (b'{"items":[]}}', "cut short"),
        (b"{}", "no list of pods"),
        (b"[]", "no list of pods"),
        (b'{"items":3}', "no list of pods"),
        (b'{"items":{}}', "no list of pods"),
        (b'{"x":{"items":[]}}', "no list of pods"),
        (b'{"items":[] x}', "no JSON"),
        (b"<html>", "no JSON"),
    ],
)
def test_what_is_no_list_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(PodsError, match=said):
        items_of(content)


def test_arrays_in_place_of_labels_are_not_taken_for_none() -> None:
    value = written("batch", labels=["app"])  # type: ignore[arg-type]
    (item,), _ = items_of(listed(encoded(value)))
    with pytest.raises(PodsError):
        parse_pod(item)


def test_a_list_of_no_pods_may_be_null() -> None:
    # As the kubelet writes it.
    assert items_of(b'{"kind":"PodList","items":null}')[0] == []


def test_a_list_takes_no_more_memory_than_a_pod_of_it() -> None:
    """Forty pods of 200 kB each, full of what a tenant likes to write."""
    value = written("batch")
    value["spec"]["containers"][0]["env"] = [{"name": f"A{n}", "value": "x"} for n in range(4000)]
    value["metadata"]["labels"] = {"app": "batch"} | {f"l-{n:05}": "x" for n in range(4000)}
    content = listed(*[encoded(value)] * 40)
    assert len(content) > 7 * MIB
    file = io.BytesIO(content)
    tracemalloc.start()
    try:
        pods = parse_pods({"items": Items(file.read)}, frozenset({"app"}))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert pods == (parse_pod(value, {"app"}),) * 40
    assert peak_bytes < 2 * MIB


ARRAYS = [
    "containers", "initContainers", "containerStatuses", "initContainerStatuses", "ownerReferences",
]  # fmt: skip
KEYS = st.text() | st.sampled_from(ARRAYS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=2), max_size=2), st.integers(1, 50))
def test_items_are_those_of_a_parser_with_false_for_what_is_dropped(
    items: list[dict[str, Any]], chunk: int
) -> None:
    def cut(value: Any, within: int, key: str = "") -> Any:
        if isinstance(value, dict) and within <= 6:
            return {key: cut(one, within + 1, key) for key, one in value.items()}
        if isinstance(value, list) and within == 3 and key in ARRAYS:
            return [cut(one, within + 1) for one in value]
        return False if isinstance(value, dict | list) else value

    found, _ = items_of(encoded({"items": items}), chunk)
    assert found == [cut(item, 1) for item in items]
