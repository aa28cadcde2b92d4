//! The built-in page: charts of what `/state.json` has, without anything from elsewhere.

/// The page, as it is served.
pub const PAGE: &str = include_str!("page.html");
