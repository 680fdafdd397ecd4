"""Test doubles that ship with Rosebed: an engine with vectors a test can predict. Needs numpy only."""

from rosebed.testing.engine import FakeEngine, StepTime
from rosebed.testing.faults import Faults
from rosebed.testing.vectors import expected_rows, fake_info, fake_sequence

__all__ = ["FakeEngine", "Faults", "StepTime", "expected_rows", "fake_info", "fake_sequence"]
