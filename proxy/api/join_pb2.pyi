from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("token", "ttl_s")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    ttl_s: int
    def __init__(self, token: _Optional[bytes] = ..., ttl_s: _Optional[int] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("token", "trust_anchors", "namespace", "service_account", "workload")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TRUST_ANCHORS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ACCOUNT_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    trust_anchors: str
    namespace: str
    service_account: str
    workload: str
    def __init__(self, token: _Optional[bytes] = ..., trust_anchors: _Optional[str] = ..., namespace: _Optional[str] = ..., service_account: _Optional[str] = ..., workload: _Optional[str] = ...) -> None: ...
