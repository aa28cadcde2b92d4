//! Addresses of the two ends, as quinn knows them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Address of the server. The host knows where its packets go; quinn only compares addresses.
pub(super) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 443);

/// Addresses of a client, by their number: the first, and those of its migrations (RFC 2544 reserves 198.18.0.0/15).
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const LATER_ADDRESSES: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const LATER_COUNT: u32 = 1 << 17;

/// The client's address with a number.
pub(super) fn client_address(number: u32) -> SocketAddr {
    let ip = if number == 0 {
        FIRST_ADDRESS
    } else {
        Ipv4Addr::from(LATER_ADDRESSES + (number - 1) % LATER_COUNT)
    };
    SocketAddr::new(IpAddr::V4(ip), 49_152)
}

/// Number of a client's address.
pub(super) fn address_number(address: SocketAddr) -> u32 {
    match address.ip() {
        IpAddr::V4(ip) => (u32::from(ip) + 1).saturating_sub(LATER_ADDRESSES),
        IpAddr::V6(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_numbers() {
        for number in [0, 1, 2, LATER_COUNT] {
            assert_eq!(address_number(client_address(number)), number);
        }
        assert_ne!(client_address(0).ip(), client_address(1).ip());
    }
}
