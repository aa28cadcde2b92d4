//! What a scenario file means: schema, units, links, traffic.
