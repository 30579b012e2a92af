import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from proxy.api import http_types_pb2 as _http_types_pb2
from proxy.api import net_pb2 as _net_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ObserveRequest(_message.Message):
    __slots__ = ("limit", "match", "extract")
    class Match(_message.Message):
        __slots__ = ("all", "any", "source", "destination", "http", "destination_label", "route_label")
        class Seq(_message.Message):
            __slots__ = ("matches",)
            MATCHES_FIELD_NUMBER: _ClassVar[int]
            matches: _containers.RepeatedCompositeFieldContainer[ObserveRequest.Match]
            def __init__(self, matches: _Optional[_Iterable[_Union[ObserveRequest.Match, _Mapping]]] = ...) -> None: ...
        class Label(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        class Tcp(_message.Message):
            __slots__ = ("netmask", "ports")
            class Netmask(_message.Message):
                __slots__ = ("ip", "mask")
                IP_FIELD_NUMBER: _ClassVar[int]
                MASK_FIELD_NUMBER: _ClassVar[int]
                ip: _net_pb2.IPAddress
                mask: int
                def __init__(self, ip: _Optional[_Union[_net_pb2.IPAddress, _Mapping]] = ..., mask: _Optional[int] = ...) -> None: ...
            class PortRange(_message.Message):
                __slots__ = ("min", "max")
                MIN_FIELD_NUMBER: _ClassVar[int]
                MAX_FIELD_NUMBER: _ClassVar[int]
                min: int
                max: int
                def __init__(self, min: _Optional[int] = ..., max: _Optional[int] = ...) -> None: ...
            NETMASK_FIELD_NUMBER: _ClassVar[int]
            PORTS_FIELD_NUMBER: _ClassVar[int]
            netmask: ObserveRequest.Match.Tcp.Netmask
            ports: ObserveRequest.Match.Tcp.PortRange
            def __init__(self, netmask: _Optional[_Union[ObserveRequest.Match.Tcp.Netmask, _Mapping]] = ..., ports: _Optional[_Union[ObserveRequest.Match.Tcp.PortRange, _Mapping]] = ...) -> None: ...
        class Http(_message.Message):
            __slots__ = ("scheme", "method", "authority", "path")
            class StringMatch(_message.Message):
                __slots__ = ("exact", "prefix")
                EXACT_FIELD_NUMBER: _ClassVar[int]
                PREFIX_FIELD_NUMBER: _ClassVar[int]
                exact: str
                prefix: str
                def __init__(self, exact: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...
            SCHEME_FIELD_NUMBER: _ClassVar[int]
            METHOD_FIELD_NUMBER: _ClassVar[int]
            AUTHORITY_FIELD_NUMBER: _ClassVar[int]
            PATH_FIELD_NUMBER: _ClassVar[int]
            scheme: _http_types_pb2.Scheme
            method: _http_types_pb2.HttpMethod
            authority: ObserveRequest.Match.Http.StringMatch
            path: ObserveRequest.Match.Http.StringMatch
            def __init__(self, scheme: _Optional[_Union[_http_types_pb2.Scheme, _Mapping]] = ..., method: _Optional[_Union[_http_types_pb2.HttpMethod, _Mapping]] = ..., authority: _Optional[_Union[ObserveRequest.Match.Http.StringMatch, _Mapping]] = ..., path: _Optional[_Union[ObserveRequest.Match.Http.StringMatch, _Mapping]] = ...) -> None: ...
        ALL_FIELD_NUMBER: _ClassVar[int]
        ANY_FIELD_NUMBER: _ClassVar[int]
        NOT_FIELD_NUMBER: _ClassVar[int]
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        DESTINATION_FIELD_NUMBER: _ClassVar[int]
        HTTP_FIELD_NUMBER: _ClassVar[int]
        DESTINATION_LABEL_FIELD_NUMBER: _ClassVar[int]
        ROUTE_LABEL_FIELD_NUMBER: _ClassVar[int]
        all: ObserveRequest.Match.Seq
        any: ObserveRequest.Match.Seq
        source: ObserveRequest.Match.Tcp
        destination: ObserveRequest.Match.Tcp
        http: ObserveRequest.Match.Http
        destination_label: ObserveRequest.Match.Label
        route_label: ObserveRequest.Match.Label
        def __init__(self, all: _Optional[_Union[ObserveRequest.Match.Seq, _Mapping]] = ..., any: _Optional[_Union[ObserveRequest.Match.Seq, _Mapping]] = ..., source: _Optional[_Union[ObserveRequest.Match.Tcp, _Mapping]] = ..., destination: _Optional[_Union[ObserveRequest.Match.Tcp, _Mapping]] = ..., http: _Optional[_Union[ObserveRequest.Match.Http, _Mapping]] = ..., destination_label: _Optional[_Union[ObserveRequest.Match.Label, _Mapping]] = ..., route_label: _Optional[_Union[ObserveRequest.Match.Label, _Mapping]] = ..., **kwargs) -> None: ...
    class Extract(_message.Message):
        __slots__ = ("http",)
        class Http(_message.Message):
            __slots__ = ("headers",)
            class Headers(_message.Message):
                __slots__ = ()
                def __init__(self) -> None: ...
            HEADERS_FIELD_NUMBER: _ClassVar[int]
            headers: ObserveRequest.Extract.Http.Headers
            def __init__(self, headers: _Optional[_Union[ObserveRequest.Extract.Http.Headers, _Mapping]] = ...) -> None: ...
        HTTP_FIELD_NUMBER: _ClassVar[int]
        http: ObserveRequest.Extract.Http
        def __init__(self, http: _Optional[_Union[ObserveRequest.Extract.Http, _Mapping]] = ...) -> None: ...
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MATCH_FIELD_NUMBER: _ClassVar[int]
    EXTRACT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    match: ObserveRequest.Match
    extract: ObserveRequest.Extract
    def __init__(self, limit: _Optional[int] = ..., match: _Optional[_Union[ObserveRequest.Match, _Mapping]] = ..., extract: _Optional[_Union[ObserveRequest.Extract, _Mapping]] = ...) -> None: ...

class Eos(_message.Message):
    __slots__ = ("grpc_status_code", "reset_error_code")
    GRPC_STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    RESET_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    grpc_status_code: int
    reset_error_code: int
    def __init__(self, grpc_status_code: _Optional[int] = ..., reset_error_code: _Optional[int] = ...) -> None: ...

class TapEvent(_message.Message):
    __slots__ = ("source", "source_meta", "route_meta", "destination", "destination_meta", "proxy_direction", "http")
    class ProxyDirection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[TapEvent.ProxyDirection]
        INBOUND: _ClassVar[TapEvent.ProxyDirection]
        OUTBOUND: _ClassVar[TapEvent.ProxyDirection]
    UNKNOWN: TapEvent.ProxyDirection
    INBOUND: TapEvent.ProxyDirection
    OUTBOUND: TapEvent.ProxyDirection
    class EndpointMeta(_message.Message):
        __slots__ = ("labels",)
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        LABELS_FIELD_NUMBER: _ClassVar[int]
        labels: _containers.ScalarMap[str, str]
        def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
    class RouteMeta(_message.Message):
        __slots__ = ("labels",)
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        LABELS_FIELD_NUMBER: _ClassVar[int]
        labels: _containers.ScalarMap[str, str]
        def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
    class Http(_message.Message):
        __slots__ = ("request_init", "response_init", "response_end")
        class StreamId(_message.Message):
            __slots__ = ("base", "stream")
            BASE_FIELD_NUMBER: _ClassVar[int]
            STREAM_FIELD_NUMBER: _ClassVar[int]
            base: int
            stream: int
            def __init__(self, base: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...
        class RequestInit(_message.Message):
            __slots__ = ("id", "method", "scheme", "authority", "path", "headers")
            ID_FIELD_NUMBER: _ClassVar[int]
            METHOD_FIELD_NUMBER: _ClassVar[int]
            SCHEME_FIELD_NUMBER: _ClassVar[int]
            AUTHORITY_FIELD_NUMBER: _ClassVar[int]
            PATH_FIELD_NUMBER: _ClassVar[int]
            HEADERS_FIELD_NUMBER: _ClassVar[int]
            id: TapEvent.Http.StreamId
            method: _http_types_pb2.HttpMethod
            scheme: _http_types_pb2.Scheme
            authority: str
            path: str
            headers: _http_types_pb2.Headers
            def __init__(self, id: _Optional[_Union[TapEvent.Http.StreamId, _Mapping]] = ..., method: _Optional[_Union[_http_types_pb2.HttpMethod, _Mapping]] = ..., scheme: _Optional[_Union[_http_types_pb2.Scheme, _Mapping]] = ..., authority: _Optional[str] = ..., path: _Optional[str] = ..., headers: _Optional[_Union[_http_types_pb2.Headers, _Mapping]] = ...) -> None: ...
        class ResponseInit(_message.Message):
            __slots__ = ("id", "since_request_init", "http_status", "headers")
            ID_FIELD_NUMBER: _ClassVar[int]
            SINCE_REQUEST_INIT_FIELD_NUMBER: _ClassVar[int]
            HTTP_STATUS_FIELD_NUMBER: _ClassVar[int]
            HEADERS_FIELD_NUMBER: _ClassVar[int]
            id: TapEvent.Http.StreamId
            since_request_init: _duration_pb2.Duration
            http_status: int
            headers: _http_types_pb2.Headers
            def __init__(self, id: _Optional[_Union[TapEvent.Http.StreamId, _Mapping]] = ..., since_request_init: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., http_status: _Optional[int] = ..., headers: _Optional[_Union[_http_types_pb2.Headers, _Mapping]] = ...) -> None: ...
        class ResponseEnd(_message.Message):
            __slots__ = ("id", "since_request_init", "since_response_init", "response_bytes", "eos", "trailers")
            ID_FIELD_NUMBER: _ClassVar[int]
            SINCE_REQUEST_INIT_FIELD_NUMBER: _ClassVar[int]
            SINCE_RESPONSE_INIT_FIELD_NUMBER: _ClassVar[int]
            RESPONSE_BYTES_FIELD_NUMBER: _ClassVar[int]
            EOS_FIELD_NUMBER: _ClassVar[int]
            TRAILERS_FIELD_NUMBER: _ClassVar[int]
            id: TapEvent.Http.StreamId
            since_request_init: _duration_pb2.Duration
            since_response_init: _duration_pb2.Duration
            response_bytes: int
            eos: Eos
            trailers: _http_types_pb2.Headers
            def __init__(self, id: _Optional[_Union[TapEvent.Http.StreamId, _Mapping]] = ..., since_request_init: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., since_response_init: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., response_bytes: _Optional[int] = ..., eos: _Optional[_Union[Eos, _Mapping]] = ..., trailers: _Optional[_Union[_http_types_pb2.Headers, _Mapping]] = ...) -> None: ...
        REQUEST_INIT_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_INIT_FIELD_NUMBER: _ClassVar[int]
        RESPONSE_END_FIELD_NUMBER: _ClassVar[int]
        request_init: TapEvent.Http.RequestInit
        response_init: TapEvent.Http.ResponseInit
        response_end: TapEvent.Http.ResponseEnd
        def __init__(self, request_init: _Optional[_Union[TapEvent.Http.RequestInit, _Mapping]] = ..., response_init: _Optional[_Union[TapEvent.Http.ResponseInit, _Mapping]] = ..., response_end: _Optional[_Union[TapEvent.Http.ResponseEnd, _Mapping]] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_META_FIELD_NUMBER: _ClassVar[int]
    ROUTE_META_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_META_FIELD_NUMBER: _ClassVar[int]
    PROXY_DIRECTION_FIELD_NUMBER: _ClassVar[int]
    HTTP_FIELD_NUMBER: _ClassVar[int]
    source: _net_pb2.TcpAddress
    source_meta: TapEvent.EndpointMeta
    route_meta: TapEvent.RouteMeta
    destination: _net_pb2.TcpAddress
    destination_meta: TapEvent.EndpointMeta
    proxy_direction: TapEvent.ProxyDirection
    http: TapEvent.Http
    def __init__(self, source: _Optional[_Union[_net_pb2.TcpAddress, _Mapping]] = ..., source_meta: _Optional[_Union[TapEvent.EndpointMeta, _Mapping]] = ..., route_meta: _Optional[_Union[TapEvent.RouteMeta, _Mapping]] = ..., destination: _Optional[_Union[_net_pb2.TcpAddress, _Mapping]] = ..., destination_meta: _Optional[_Union[TapEvent.EndpointMeta, _Mapping]] = ..., proxy_direction: _Optional[_Union[TapEvent.ProxyDirection, str]] = ..., http: _Optional[_Union[TapEvent.Http, _Mapping]] = ...) -> None: ...
