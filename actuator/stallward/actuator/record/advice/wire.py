"""Advice on the wire."""

from __future__ import annotations

from typing import Final

from stallward.actuator.record.advice.advice import Advice
from stallward.actuator.record.wire import DECISION, FAULT
from stallward.proto.codec import Codec
from stallward.proto.v1 import stallward_pb2 as pb

ADVICE: Final = Codec(Advice, pb.Advice, use=(DECISION, FAULT))
