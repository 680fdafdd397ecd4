"""Which steps are taken to be short. No torch."""

from rosebed.rose.short_steps import ShortSteps


def test_a_step_is_short_if_those_like_it_were() -> None:
    short = ShortSteps(limit_ns=100)
    assert not short.holds(11)  # nothing is known
    short.observe(11, 80)
    assert [short.holds(num_tokens) for num_tokens in (8, 9, 16, 17)] == [False, True, True, False]
    short.observe(40, 300)
    assert not short.holds(64)
    assert short.holds(11)


def test_one_slow_step_does_not_count_for_much_many_do() -> None:
    short = ShortSteps(limit_ns=100)
    short.observe(1, 80)
    short.observe(1, 180)  # 80 + 0.2 · 100
    assert short.holds(1)
    short.observe(1, 180)
    assert not short.holds(1)
    short.observe(1, 60)  # (116 + 60) / 2
    assert short.holds(1)
