"""kamebench measures speech-to-speech systems: what they say, and when."""

__version__ = "0.1.0"
