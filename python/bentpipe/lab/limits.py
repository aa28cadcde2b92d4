"""Limits of a lab, each named in the message when it is reached."""

SETTINGS = 4
"""Settings side by side."""
DURATION = 7200.0
"""Simulated time [s]."""
TEXT = 256 * 1024
"""Length of a scenario file [bytes]."""
PLAYBACKS = 6
"""Pages that run something at the same time."""
CPU_SECONDS = 1800.0
"""Processor time of a playback [s]."""
MEMORY = 2 * 1024**3
"""Memory of a playback's process [bytes]."""
PACKETS = 1500
"""Packets in a frame; of more, an even share is drawn."""
ROWS = 20_000
"""Rows of a table in a frame; of longer ones, an even share is sent."""
