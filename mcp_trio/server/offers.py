"""What an application registers with its server: tools, prompts, resources and templates."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from mcp_trio import types
from mcp_trio.server.caching import CacheScope
from mcp_trio.server.completion import Completions
from mcp_trio.server.core import Core
from mcp_trio.server.entries import describe_function, function_name
from mcp_trio.server.prompts import Prompts
from mcp_trio.server.resources import Description, Resources
from mcp_trio.server.templates import is_template
from mcp_trio.server.tools import Tools

__all__ = ["Offers"]

F = TypeVar("F", bound=Callable[..., Any])


class Offers:
    """The registering half of `Server`: each as a decorator and as a call."""

    def __init__(self, core: Core) -> None:
        self._tools = Tools(core)
        self._prompts = Prompts(core)
        self._resources = Resources(core)
        self._completions = Completions(
            core, self._prompts.registry, self._resources.templates.registry
        )

    # Tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: types.ToolAnnotations | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | Literal[False] | None = None,
    ) -> Callable[[F], F]: ...
    def tool(self, *function: Any, **options: Any) -> Any:
        """Register a function as a tool: ``@server.tool`` or ``@server.tool(title=...)``.

        The function stays what it is. `add_tool` has the arguments and the rules.
        """
        return _decorate(self.add_tool, *function, **options)

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: types.ToolAnnotations | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | Literal[False] | None = None,
    ) -> None:
        """Register a function as a tool.

        Its parameters, with their annotations, become the schema of the arguments, and
        arguments are checked against it before the function is called. A parameter annotated
        with `Context` gets the context of the call and is not in the schema.

        Annotations may be ``str``, ``int``, ``float``, ``bool``, ``None``, ``Any``; unions,
        ``Literal`` and ``Enum``; lists, tuples, sets and ``dict[str, ...]``; TypedDicts,
        NamedTuples, dataclasses and attrs classes, nested, generic or recursive; ``date``,
        ``datetime`` (with an offset), ``time``, ``timedelta`` (ISO 8601), ``UUID``, ``Decimal``
        and ``bytes`` (Base64). In ``Annotated``, a string describes, `Header` has HTTP clients
        send the parameter as a header, too, and `msgspec.Meta` or the classes of the package
        annotated-types constrain: ``Annotated[int, "how many", Meta(ge=1, le=10)]``.

        An async function runs in the task of the request and is cancelled with it. Any other
        runs in a thread; when the request is cancelled, its result is dropped.

        What it returns becomes the content of the result: text, content blocks (`types`), a list
        of blocks and text, a whole `types.CallToolResult`; anything else becomes structured
        content, with the same as JSON text beside it. Where the return annotation is of the
        latter kind, it becomes the output schema, and what is returned is checked against it.
        An exception becomes a result that says so (`isError`), its traceback goes to the log; an
        `errors.ErrorResponse` becomes that error response.

        Args:
            function: what runs.
            name: its name; None for the function's own.
            title: what people call it.
            description: what it does, for a model; None for the docstring.
            annotations: hints about its behaviour.
            icons: pictures for display.
            meta: further `_meta` of its entry in the list.
            input_schema: a JSON Schema of the arguments, instead of one that is made from the
                signature. It is listed as it is, and arguments are checked by it; the function
                gets those that it names, and with ``**keywords`` all. Of the dialect 2020-12, or
                of 2019-09 or draft 7, 6 or 4 where ``$schema`` says so. Formats are not checked,
                and no other document is fetched.
            output_schema: the same of the structured content, instead of what the return
                annotation says; False for none.

        Raises:
            ValueError: there is a tool of that name already, or a schema cannot be used.
            TypeError: the signature asks for what no client can send, or promises what cannot
                be sent back; or an argument is of the wrong type.

        Source: specification, server/tools.
        """
        self._tools.add(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            input_schema=input_schema,
            output_schema=output_schema,
        )

    def remove_tool(self, name: str) -> None:
        """Take a tool out. Calls in progress go on.

        Raises:
            LookupError: there is no tool of that name.
        """
        self._tools.registry.remove(name)

    # Prompts

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...
    def prompt(self, *function: Any, **options: Any) -> Any:
        """Register a function as a prompt: ``@server.prompt`` or ``@server.prompt(title=...)``.

        The function stays what it is. `add_prompt` has the arguments and the rules.
        """
        return _decorate(self.add_prompt, *function, **options)

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a function as a prompt.

        Its parameters become the prompt's arguments. The protocol has them all as strings; a
        parameter that is annotated with something else gets it read from the text (``"5"`` for
        an `int`). It returns text, a content block, a `types.PromptMessage`, a list of these, or
        a whole `types.GetPromptResult`.

        Args:
            function: what runs, as for `add_tool`.
            name: its name; None for the function's own.
            title: what people call it.
            description: what it is for; None for the docstring.
            icons: pictures for display.
            meta: further `_meta` of its entry in the list.

        Raises:
            ValueError: there is a prompt of that name already.
            TypeError: the signature asks for what no client can send.

        Source: specification, server/prompts.
        """
        self._prompts.add(
            function, name=name, title=title, description=description, icons=icons, meta=meta
        )

    def remove_prompt(self, name: str) -> None:
        """Take a prompt out.

        Raises:
            LookupError: there is no prompt of that name.
        """
        self._prompts.registry.remove(name)

    # Resources

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: types.Annotations | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
    ) -> Callable[[F], F]:
        """Register a function that reads a resource: ``@server.resource("note://{name}")``.

        A URI with an expression in braces is a template. Name and description come from the
        function where they are not given; the function stays what it is. `add_resource` and
        `add_resource_template` have the arguments and the rules.

        Raises:
            TypeError: used without a URI, which would register nothing.
        """
        if not isinstance(uri, str):
            raise TypeError(f"@resource needs a URI: @resource('note://a'), got {uri!r}")

        def register(function: F) -> F:
            about = Description(
                name=function_name(function) if name is None else name,
                title=title,
                description=describe_function(function) if description is None else description,
                mime_type=mime_type,
                size=size,
                annotations=annotations,
                icons=icons,
                meta=meta,
                ttl_ms=ttl_ms,
                cache_scope=cache_scope,
            )
            if is_template(uri):
                self._resources.add_template(uri, function, about)
            else:
                self._resources.add(uri, function, about)
            return function

        return register

    def add_resource(
        self,
        uri: str,
        read: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: types.Annotations | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
    ) -> None:
        """Register a resource.

        One function may read any number of resources: it gets the URI if it has a parameter
        ``uri``, and the context if one is annotated with `Context`. It returns text, bytes, a
        `types.TextResourceContents` or `types.BlobResourceContents`, a list of these, or a whole
        `types.ReadResourceResult`, and raises `server.resources.ResourceNotFound` if there is
        nothing any more. Async or not, as for `add_tool`.

        Args:
            uri: an absolute URI, compared as it is.
            read: what reads it.
            name: for programs; None for the URI.
            title: what people call it.
            description: what it is.
            mime_type: of the contents; None for plain text or octets, by what `read` returns.
            size: in bytes, if known.
            annotations: hints about audience, priority and age.
            icons: pictures for display.
            meta: further `_meta` of its entry in the list.
            ttl_ms: how long clients may cache it, in milliseconds; None for the server's value.
            cache_scope: who may share it; None for the server's value.

        Raises:
            ValueError: there is a resource of that URI already, or it is not an absolute URI, or
                a caching hint makes no sense.
            TypeError: `read` has a parameter that nothing fills.

        Source: specification, server/resources.
        """
        about = Description(
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            meta=meta,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
        )
        self._resources.add(uri, read, about)

    def remove_resource(self, uri: str) -> None:
        """Take a resource out. Subscriptions to its URI hear of it and stay open: it may come back.

        Raises:
            LookupError: there is no resource of that URI.
        """
        self._resources.remove(uri)

    def add_resource_template(
        self,
        uri_template: str,
        read: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: types.Annotations | None = None,
        icons: Sequence[types.Icon] = (),
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: CacheScope | None = None,
    ) -> None:
        """Register a template: every URI that it matches can be read.

        `read` gets the variables by name, percent-decoded, and read as what they are annotated
        with; a URI whose variables cannot be read so is not found. Otherwise as `add_resource`,
        which takes precedence; among templates the one registered first does.

        Args:
            uri_template: see `server.templates.UriTemplate` for what is understood of RFC 6570,
                and for what never matches.
            read: what reads a URI.
            name: for programs; None for the template itself.
            title: what people call it.
            description: what it is.
            mime_type: if it is the same for all that the template matches.
            annotations: hints about audience, priority and age.
            icons: pictures for display.
            meta: further `_meta` of its entry in the list.
            ttl_ms: how long clients may cache what they read, in milliseconds.
            cache_scope: who may share it.

        Raises:
            ValueError: it is registered already, or is not understood, or a caching hint makes
                no sense.
            TypeError: the parameters of `read` do not fit the variables.

        Source: specification, server/resources, "Resource Templates".
        """
        about = Description(
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            annotations=annotations,
            icons=icons,
            meta=meta,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
        )
        self._resources.add_template(uri_template, read, about)

    def remove_resource_template(self, uri_template: str) -> None:
        """Take a template out.

        Raises:
            LookupError: it is not registered.
        """
        self._resources.templates.registry.remove(uri_template)


def _decorate(
    add: Callable[..., None], function: Callable[..., Any] | None = None, /, **options: Any
) -> Any:
    if function is None:
        return functools.partial(_decorate, add, **options)
    add(function, **options)
    return function
