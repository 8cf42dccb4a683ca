import errno
import io

from paceline_cli.main import explain
from paceline_core.errors import Conflict, InvalidInput, Unreachable


def told(error: Exception) -> tuple[int, str]:
    stream = io.StringIO()
    return explain(error, stream), stream.getvalue()


def test_bad_input_is_one_line_with_field_and_fix() -> None:
    error = InvalidInput("--port", "is in use; choose another")
    assert told(error) == (2, "error: --port: is in use; choose another\n")


def test_a_failure_is_status_one() -> None:
    assert told(Conflict("somebody has it")) == (1, "error: somebody has it\n")


def test_the_end_of_a_log_stands_below_the_error() -> None:
    assert told(Unreachable("it failed; its log ends with\n    last words")) == (
        1,
        "error: it failed; its log ends with\n    last words\n",
    )


def test_a_path_that_the_system_refuses_is_named_with_the_way_out() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/srv/.paceline")
    assert told(error) == (
        2,
        "error: /srv/.paceline: cannot be used: Permission denied; choose another folder with --state\n",
    )


def test_an_output_without_room_is_named() -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    assert told(error) == (1, "error: the output or a file cannot be written: No space left on device\n")


def test_a_surprise_is_one_line_without_a_trace() -> None:
    code, text = told(RuntimeError("odd"))
    assert code == 1
    assert text == "error: unexpected: RuntimeError: odd (paceline --debug shows where)\n"
