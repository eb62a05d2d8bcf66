"""Sort numbers of rows by a key, in place and stable: loops that allocate nothing."""

from __future__ import annotations

from clustertwin.core.compiled import borrowing


@borrowing
def sort_by_key(items, keys, spare, n):  # type: ignore[no-untyped-def]
    """Sort items[:n] by keys[item], lowest first; equal ones keep their order. `spare` has room for n items."""
    width = 1
    while width < n:
        for low in range(0, n, 2 * width):
            middle, high = min(low + width, n), min(low + 2 * width, n)
            if middle == high or keys[items[middle - 1]] <= keys[items[middle]]:
                continue  # the two runs are one already
            for k in range(low, middle):
                spare[k] = items[k]
            left, right, k = low, middle, low
            while left < middle:
                if right < high and keys[items[right]] < keys[spare[left]]:
                    items[k] = items[right]
                    right += 1
                else:
                    items[k] = spare[left]
                    left += 1
                k += 1
        width *= 2
