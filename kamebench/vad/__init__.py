"""Voice activity detectors by name: whole tracks for measurement, block by block for control."""

from __future__ import annotations

from kamebench.registry import Entry, Registry
from kamebench.vad.base import Detector, StreamingDetector

DETECTORS = Registry(
    "detector",
    "kamebench.detectors",
    {
        "silero": Entry("kamebench.vad.silero:SileroDetector"),
        "webrtc": Entry("kamebench.vad.webrtc:WebrtcDetector"),
        "energy": Entry("kamebench.vad.energy:EnergyDetector"),
    },
)
STREAMING_DETECTORS = Registry(
    "streaming detector",
    "kamebench.streaming_detectors",
    {
        "silero": Entry("kamebench.vad.silero:SileroStreaming"),
        "webrtc": Entry("kamebench.vad.webrtc:WebrtcStreaming"),
    },
)


def open_detector(name: str = "silero") -> Detector:
    """A detector for whole tracks.

    Raises:
        UnknownName: no detector has this name.
    """
    detector: Detector = DETECTORS.load(name)()
    return detector


def open_streaming_detector(name: str = "webrtc") -> StreamingDetector:
    """A detector for one live stream, with state of its own.

    Raises:
        UnknownName: no streaming detector has this name.
    """
    detector: StreamingDetector = STREAMING_DETECTORS.load(name)()
    return detector
