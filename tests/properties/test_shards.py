"""Shards are a partition of the selection, and balanced, whatever the cases and durations."""

from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.selection.request import CaseHistory, SelectionRequest, Shard
from holodeck.lib.selection.select_cases import select
from holodeck.models.test_case import TestCaseModel

DURATIONS = st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=40)
SEEDS = st.none() | st.integers(0, 99)


@given(DURATIONS, st.integers(1, 8), SEEDS, st.integers(1, 50))
def test_the_shards_together_are_the_selection_and_each_case_is_in_one(
    durations, count, seed, most
):
    cases = [TestCaseModel(name=f"case {at}", input="x") for at in range(len(durations))]
    past = [CaseHistory(whole_run_ms=one) for one in durations]
    whole = select(cases, SelectionRequest(seed=seed, limit=most), past).indexes

    shards = [
        select(
            cases,
            SelectionRequest(seed=seed, limit=most, shard=Shard(n, count), allow_empty=True),
            past,
        )
        for n in range(1, count + 1)
    ]

    assert sorted(at for one in shards for at in one.indexes) == sorted(whole)
    assert all(one.indexes == [at for at in whole if at in one.indexes] for one in shards)
    assert len({one.selection.plan for one in shards}) == 1


@given(DURATIONS, st.integers(1, 8))
def test_no_shard_is_longer_than_another_by_more_than_its_last_case(durations, count):
    known = [one for one in durations if one is not None]
    cases = [TestCaseModel(name=f"case {at}", input="x") for at in range(len(durations))]
    past = [CaseHistory(whole_run_ms=one) for one in durations]

    loads = [
        sum(
            durations[at] or 0
            for at in select(
                cases, SelectionRequest(shard=Shard(n, count), allow_empty=True), past
            ).indexes
        )
        for n in range(1, count + 1)
    ]

    if len(known) == len(durations):
        assert max(loads) - min(loads) <= max(known) + 1e-6
