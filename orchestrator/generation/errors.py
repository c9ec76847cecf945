"""The one exception of the embedded server: it becomes the HTTP answer."""


class ApiError(Exception):
    """A request that cannot be served. `status` is the HTTP status, `param` the offending field of the request."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.param = message, status, param

    def body(self) -> dict[str, object]:
        """The error body as vLLM and OpenAI write it."""
        kinds = {400: "BadRequestError", 403: "PermissionDeniedError", 404: "NotFoundError", 409: "ConflictError"}
        kind = kinds.get(self.status, "InternalServerError" if self.status >= 500 else "BadRequestError")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.status}}
