"""Live runs: a scenario in real time, with the live gateway, servers and clients in network namespaces.

`chain` maps a scenario to the network, `namespaces` creates and removes the namespaces, `processes` starts
programs in them, `session` performs one run, and `record` converts its records to the tables of a simulation.
`privileges` checks the permissions needed.
"""
