//! Indexes of a scenario's lists.

use std::ops::Index;

use serde::Serialize;

use super::{Gateway, Host, Link, Transport};

macro_rules! indexes {
    ($($(#[$doc:meta])* $name:ident: $($list:ty),*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub struct $name(pub usize);

        $(impl Index<$name> for $list {
            type Output = <$list as Index<usize>>::Output;

            fn index(&self, index: $name) -> &Self::Output {
                &self[index.0]
            }
        })*
    )*};
}

indexes! {
    /// Index of a group of hosts.
    HostIndex: [Host], Vec<Host>;
    /// Index of a link.
    LinkIndex: [Link], Vec<Link>;
    /// Index of a gateway.
    GatewayIndex: [Gateway], Vec<Gateway>;
    /// Index of a transport.
    TransportIndex: [Transport], Vec<Transport>;
}
