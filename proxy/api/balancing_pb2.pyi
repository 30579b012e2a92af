from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Overlay(_message.Message):
    __slots__ = ("tuning",)
    TUNING_FIELD_NUMBER: _ClassVar[int]
    tuning: Tuning
    def __init__(self, tuning: _Optional[_Union[Tuning, _Mapping]] = ...) -> None: ...

class Tuning(_message.Message):
    __slots__ = ("least_request", "slow_start_s", "probe_share")
    LEAST_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SLOW_START_S_FIELD_NUMBER: _ClassVar[int]
    PROBE_SHARE_FIELD_NUMBER: _ClassVar[int]
    least_request: bool
    slow_start_s: float
    probe_share: float
    def __init__(self, least_request: _Optional[bool] = ..., slow_start_s: _Optional[float] = ..., probe_share: _Optional[float] = ...) -> None: ...
