//! The satellite gateway without any IO: placement, PEP buffers, transmit queue, regulator.
