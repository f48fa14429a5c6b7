from hypothesis import given
from hypothesis import strategies as st

from strands_manga_memory.telemetry.recording import LogHistogram


@given(st.lists(st.floats(1e-6, 1e7), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_off_by_at_most_the_growth(values: list[float], share: float) -> None:
    histogram = LogHistogram(1.25)
    for value in values:
        histogram.add(value)
    ordered = sorted(values)
    exact = ordered[min(len(ordered) - 1, max(0, -int(-(share * len(ordered)) // 1) - 1))]
    assert exact / 1.0001 <= histogram.quantile(share) <= exact * 1.2501
    assert histogram.total == len(values)


def test_counts_of_two_histograms_are_added() -> None:
    one, other = LogHistogram(), LogHistogram()
    one.add(10.0, 3)
    other.add(10.0)
    other.add(0.0)
    one.counts.update(other.counts)
    assert one.total == 5
    assert one.quantile(0.0001) <= 1.25e-9
    assert LogHistogram().quantile(0.5) == 0.0
