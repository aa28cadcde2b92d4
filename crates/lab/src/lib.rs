//! What a live run has around the gateway: links that delay, limit and lose packets as the scenario says, and users who
//! fetch pages over them.
