"""Define errors of the API: a status, and a body that names the parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi.responses import JSONResponse

_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = headers

    @property
    def body(self) -> dict[str, Any]:
        """Return the response body."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = _KINDS.get(self.status, kind)
        fields = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}

    @property
    def response(self) -> JSONResponse:
        """Return the error as a response."""
        return JSONResponse(self.body, self.status, self.headers)


def invalid(param: str | None, message: str) -> ApiError:
    """Return the error of a field whose value is wrong."""
    return ApiError(400, message, param=param, code="invalid_value")


def require_known(param: str, tokens: Iterable[int], vocabulary: int) -> None:
    """Raise :class:`ApiError` unless the model has all tokens of a field."""
    largest = max(tokens, default=0)
    if largest >= vocabulary:
        raise invalid(param, f"{param} must have tokens below {vocabulary}, not {largest}")


def busy(message: str) -> ApiError:
    """Return the error of a full queue or a stopping server; clients may try again."""
    headers = {"Retry-After": "1"}
    return ApiError(503, message, code="server_overloaded", headers=headers)
