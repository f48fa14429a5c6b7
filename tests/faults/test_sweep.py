"""Sweepers are killed at any moment: each session gets its one summary, written once."""

import os

from tests.faults.sweep import campaign, running


def test_each_summary_once_whoever_dies() -> None:
    with running() as stores:
        report = campaign(stores, sessions=16, sweepers=3, seed=os.getpid(), within=60)
    assert report.is_clean, report
    assert report.kills >= 3
