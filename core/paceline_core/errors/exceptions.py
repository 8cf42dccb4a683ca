"""The exceptions of paceline.

PacelineError
├── InvalidInput     a manifest, a configuration file or a flag is wrong: names the field and the fix
├── NotFound         a named object does not exist
├── Conflict         another writer changed or holds it
├── Unreachable      the other side did not answer in time
│   └── Unauthorized  the API server does not accept our credentials
├── ApiError         the API server refuses a request: status, its reason, its words
│   └── Forbidden    this process may not: the words name verb and resource
└── RequestError     a client's request ends with a row of the error table
"""

from collections.abc import Mapping
from types import MappingProxyType

from paceline_core.errors.table import ERRORS, Code, ErrorSpec


class PacelineError(Exception):
    """Root of all errors that paceline raises on purpose; its text is fit for a user's eyes."""


class InvalidInput(PacelineError):
    """`field` is a path such as `spec.pools[0].name`; the message says what is wrong and how to fix it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class NotFound(PacelineError):
    """A named object does not exist."""


class Conflict(PacelineError):
    """The object changed in between, or belongs to another owner."""


class Unreachable(PacelineError):
    """The other side did not answer within its limit."""


class Unauthorized(Unreachable):
    """The API server does not accept our credentials; it may again when they are renewed."""


class ApiError(PacelineError):
    """The API server refused. `status` is HTTP's, `reason` its CamelCase word; `retry_after` in seconds, if sent."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Forbidden(ApiError):
    """A right is missing; the message names user, verb and resource."""


class RequestError(PacelineError):
    """Ends one request. `param` names the request's field, `retry_after` is in seconds.

    `headers` are what HTTP requires beside this status, such as `allow`.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = headers

    @property
    def row(self) -> ErrorSpec:
        return ERRORS[self.code]
