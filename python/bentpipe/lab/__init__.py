"""The lab: a local page in which one looks at a gateway while it runs.

- `documents`: scenario files as the page sees them: checked, edited key by key, drawn, as forms
- `playback`: runs side by side that are advanced, changed and replayed
- `worker`: the process of a playback; it sends frames when the page is ready for them
- `server`: the page, its data and its websocket, on loopback
"""
