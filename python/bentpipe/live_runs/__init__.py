"""A scenario run in real time: network namespaces, the live gateway between them, servers and users.

`chain` says what of a scenario is where, `namespaces` makes and removes the network, `processes` starts what
runs in it, `session` is one run, and `record` makes of it the tables of a simulation. `privileges` says
whether that is allowed.
"""
