"""The tree of errors and the one table of what they become."""

import grpc
import pytest

from rosebed.core import errors
from rosebed.core.errors import ERROR_TABLE, RequestError, RosebedError, ServerError, SetupError, error_from_code


def descendants(root: type[RosebedError]) -> set[type[RosebedError]]:
    return {child for direct in root.__subclasses__() for child in {direct, *descendants(direct)}}


def of_core(classes: set[type[RosebedError]]) -> set[type[RosebedError]]:
    """Those the table answers for; a part's own subclasses take their ancestor's row."""
    return {error_type for error_type in classes if error_type.__module__ == errors.__name__}


def test_every_error_that_can_reach_a_client_is_in_the_table() -> None:
    assert of_core(descendants(RequestError) | descendants(ServerError)) == set(ERROR_TABLE)


def test_the_tree_at_the_top_of_the_module_shows_every_class() -> None:
    drawn = {line.strip("│├└─ ").split()[0] for line in (errors.__doc__ or "").splitlines() if "──" in line}
    assert drawn == {error_type.__name__ for error_type in of_core(descendants(RosebedError))}


def test_codes_are_unique_and_statuses_exist() -> None:
    assert len({mapping.code for mapping in ERROR_TABLE.values()}) == len(ERROR_TABLE)
    for mapping in ERROR_TABLE.values():
        assert mapping.grpc_status in grpc.StatusCode.__members__
        assert 400 <= mapping.http_status < 600


@pytest.mark.parametrize("error_type", ERROR_TABLE)
def test_the_callers_faults_are_4xx_and_ours_are_5xx(error_type: type[RosebedError]) -> None:
    status = ERROR_TABLE[error_type].http_status
    assert (status >= 500) == (issubclass(error_type, ServerError) or error_type is errors.DeadlineExceeded)


@pytest.mark.parametrize("error_type", ERROR_TABLE)
def test_a_code_leads_back_to_its_class(error_type: type[RosebedError]) -> None:
    error = error_from_code(ERROR_TABLE[error_type].code, "why")
    assert type(error) is error_type
    assert error.message == "why"


def test_what_is_not_in_the_table_is_an_internal_fault() -> None:
    mapping = errors.mapping_of(SetupError("why"))
    assert (mapping.code, mapping.grpc_status, mapping.http_status) == ("internal_error", "INTERNAL", 500)
    assert type(error_from_code("of a newer version", "why")) is ServerError


def test_a_subclass_takes_its_ancestors_row() -> None:
    class Special(errors.InvalidInput):
        pass

    assert errors.mapping_of(Special("why")) == ERROR_TABLE[errors.InvalidInput]
