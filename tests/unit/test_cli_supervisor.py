"""When the supervisor gives up."""

from rosebed.cli.supervisor import RestartBudget


def test_a_child_that_dies_once_in_a_while_is_always_started_again() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    assert all(budget.spend(now_s=21.0 * death) for death in range(100))


def test_a_child_that_keeps_dying_is_given_up() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    assert [budget.spend(now_s=now_s) for now_s in (0, 1, 2, 3, 59.9)] == [True, True, True, False, False]


def test_restarts_come_back_as_the_window_moves_on() -> None:
    budget = RestartBudget(limit=2, window_s=10)
    assert [budget.spend(now_s=now_s) for now_s in (0, 5, 9, 10, 14, 15)] == [True, True, False, True, False, True]


def test_it_says_how_long_to_wait() -> None:
    budget = RestartBudget(limit=2, window_s=10)
    assert budget.wait_s(0) == 0
    assert budget.spend(now_s=1)
    assert budget.spend(now_s=4)
    assert budget.wait_s(5) == 6
    assert budget.wait_s(11) == 0
