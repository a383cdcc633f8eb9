"""Resources: what a client may read by its URI, listed one by one or described by a template.

Source: specification, server/resources.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from mcp_trio import errors, types
from mcp_trio.protocol import jsonrpc
from mcp_trio.server import contents
from mcp_trio.server.caching import CacheHints, CacheScope, forbid_caching
from mcp_trio.server.completion import Completer, completers_of
from mcp_trio.server.core import (
    Asked,
    Call,
    Core,
    Listing,
    read_string,
    run_handler,
)
from mcp_trio.server.entries import check_entry, entry
from mcp_trio.server.fields import MISSING
from mcp_trio.server.handlers import Handler, handler_of
from mcp_trio.server.inputs import came_with_inputs
from mcp_trio.server.readers import Mismatch, Reader, read_text
from mcp_trio.server.schema import Builder
from mcp_trio.server.templates import UriTemplate
from mcp_trio.subscriptions import uris
from mcp_trio.subscriptions.events import ResourcesListChanged, ResourceUpdated

__all__ = ["Description", "Resource", "ResourceNotFound", "Resources", "Template"]


class ResourceNotFound(errors.InvalidParams):
    """There is no resource of that URI (-32602); raise it in a handler to say so.

    Source: specification, server/resources, "Error Handling".
    """

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found", data={"uri": uri})


@attrs.frozen(kw_only=True)
class Description:
    """How a resource or a template is listed and cached; None leaves a field out.

    Attributes:
        name: for programs, or for display where there is no title.
        title: for display.
        description: what it is, for a model or a person.
        mime_type: the type of its contents.
        size: in bytes, before any encoding.
        annotations: hints about audience, priority and age.
        icons: pictures for display.
        meta: further `_meta` of its entry in the list.
        ttl_ms: how long a client may cache what it read, in milliseconds; None for the
            server's own value.
        cache_scope: who may share what was read; None for the server's own value.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: types.Annotations | None = None
    icons: Sequence[types.Icon] = ()
    meta: Mapping[str, Any] | None = None
    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None

    def __attrs_post_init__(self) -> None:
        self.hints()

    def hints(self) -> CacheHints:
        """What it says about caching.

        Raises:
            ValueError: one of the hints makes no sense.
        """
        return CacheHints(self.ttl_ms, self.cache_scope)

    def to_wire(self, key: dict[str, Any], uri: str) -> dict[str, Any]:
        """The entry of a list, found by `key`; its URI stands for a name it does not have."""
        return entry(
            {**key, "name": uri if self.name is None else self.name},
            title=self.title,
            description=self.description,
            mimeType=self.mime_type,
            size=self.size,
            annotations=self.annotations,
            icons=self.icons,
            meta=self.meta,
        )


@attrs.frozen
class Resource:
    """A registered resource."""

    uri: str
    about: Description
    handler: Handler
    wants_uri: bool

    def to_wire(self) -> dict[str, Any]:
        """Its entry in the list. Made when it is listed: there can be very many."""
        return self.about.to_wire({"uri": self.uri}, self.uri)


@attrs.frozen
class Template:
    """A registered resource template."""

    template: UriTemplate
    about: Description
    handler: Handler
    readers: Mapping[str, Reader]
    completers: Mapping[str, Completer | None]
    wants_uri: bool
    wire: dict[str, Any]

    def read(self, uri: str) -> dict[str, Any] | None:
        """The handler's keywords for a URI, or None if it is none of this template's."""
        found = self.template.match(uri)
        if found is None:
            return None
        try:
            keywords = {
                name: read_text(self.readers[name], value, name)
                if isinstance(value, str)
                else self.readers[name](value, name)
                for name, value in found.items()
            }
        except Mismatch:
            return None
        if self.wants_uri:
            keywords["uri"] = uri
        return keywords


class Resources:
    """Serves `resources/list`, `resources/templates/list` and `resources/read`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        event = ResourcesListChanged()
        self.listing: Listing[Resource] = Listing(
            core, "resource", "resources", event, Resource.to_wire
        )
        self.templates: Listing[Template] = Listing(
            core, "resource template", "resourceTemplates", event, lambda template: template.wire
        )

    def add(self, uri: str, read: Callable[..., Any], about: Description) -> None:
        """Register a resource; `Server.add_resource` has the contract."""
        handler = handler_of(read)
        if not uris.has_scheme(uri):
            raise ValueError(f"not an absolute URI: {uri!r}")
        for field in handler.shape.fields:
            if field.name != "uri" and field.default is MISSING:
                raise TypeError(f"{uri}: nothing fills the parameter {field.name!r}")
        wants_uri = any(field.name == "uri" for field in handler.shape.fields)
        resource = Resource(uri, about, handler, wants_uri)
        _check(types.Resource, uri, resource.to_wire())
        self.listing.registry.add(uri, resource)
        self._core.changed(ResourceUpdated(uri))  # who waits for it to come can subscribe to it

    def remove(self, uri: str) -> None:
        """Take a resource out; `Server.remove_resource` has the contract."""
        self.listing.registry.remove(uri)
        self._core.changed(ResourceUpdated(uri))

    def add_template(self, uri: str, read: Callable[..., Any], about: Description) -> None:
        """Register a template; `Server.add_resource_template` has the contract."""
        template = UriTemplate.parse(uri)
        if not uris.has_scheme(uri):
            raise ValueError(f"not a template of absolute URIs: {uri!r}")
        handler = handler_of(read)
        fields = {field.name: field for field in handler.shape.fields}
        wants_uri = "uri" in fields and "uri" not in template.names
        for name, field in fields.items():
            filled = name in template.names or (name == "uri" and wants_uri)
            if not filled and field.default is MISSING:
                raise TypeError(f"{uri}: nothing fills the parameter {name!r}")
            if name in template.optional and field.default is MISSING:
                raise TypeError(f"{uri}: {name!r} can be absent, so it needs a default")
        builder = Builder()
        readers = {}
        annotations = {}
        for name in template.names:
            if name not in fields and handler.shape.extra is MISSING:
                raise TypeError(f"{uri}: the handler has no parameter {name!r}")
            annotation = fields[name].annotation if name in fields else handler.shape.extra
            annotations[name] = annotation
            readers[name] = builder.spec(annotation).read
            if name in template.lists:
                try:
                    readers[name](["a"], name)
                except Mismatch:
                    raise TypeError(f"{uri}: {name!r} is a list of strings") from None
        wire = about.to_wire({"uriTemplate": uri}, uri)
        _check(types.ResourceTemplate, uri, wire)
        completers = completers_of(uri, annotations)
        self.templates.registry.add(
            uri, Template(template, about, handler, readers, completers, wants_uri, wire)
        )

    async def read(self, call: Call) -> jsonrpc.Reply:
        """Answer `resources/read`."""
        uri = read_string(call.params, "uri")
        handler, about, keywords = self._find(uri)
        core = self._core
        value = await run_handler(handler, keywords, call, core)
        if type(value) is Asked:
            return jsonrpc.result_reply(call.request_id, core.complete(value.wire))
        result = contents.resource_result(value, uri, about.mime_type)
        core.caching.mark(result, call.method, about.hints())
        if came_with_inputs(call.params):
            forbid_caching(result)
        return jsonrpc.result_reply(call.request_id, core.complete(result))

    def _find(self, uri: str) -> tuple[Handler, Description, dict[str, Any]]:
        resource = self.listing.registry.get(uri)
        if resource is not None:
            return resource.handler, resource.about, {"uri": uri} if resource.wants_uri else {}
        for template in self.templates.registry:
            keywords = template.read(uri)
            if keywords is not None:
                return template.handler, template.about, keywords
        raise ResourceNotFound(uri)


def _check(kind: type[types.Value], uri: str, wire: dict[str, Any]) -> None:
    try:
        check_entry(kind, wire)
    except TypeError as problem:
        raise TypeError(f"{uri}: {problem}") from None
