//! Indexes of a scenario's lists.

use std::ops::Index;

use serde::Serialize;

use super::{Gateway, Host, Link, Transport};

macro_rules! indexes {
    ($($(#[$doc:meta])* $name:ident of $item:ty,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub struct $name(pub usize);

        impl Index<$name> for [$item] {
            type Output = $item;

            fn index(&self, index: $name) -> &$item {
                &self[index.0]
            }
        }

        impl Index<$name> for Vec<$item> {
            type Output = $item;

            fn index(&self, index: $name) -> &$item {
                &self[index.0]
            }
        }
    )*};
}

indexes! {
    /// Index of a group of hosts.
    HostIndex of Host,
    /// Index of a link.
    LinkIndex of Link,
    /// Index of a gateway.
    GatewayIndex of Gateway,
    /// Index of a transport.
    TransportIndex of Transport,
}
