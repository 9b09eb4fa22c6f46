//! Who a request really comes from, where proxies stand in front of the gateway.

use crate::client::conn::Conn;
use http::HeaderMap;
use std::net::IpAddr;
use towpath_types::net_block::client_behind;

/// The client, by what trusted proxies say.
pub(crate) fn client(conn: &Conn, headers: &HeaderMap) -> IpAddr {
    let values = headers.get_all("x-forwarded-for").iter().rev().map(http::HeaderValue::as_bytes);
    client_behind(conn.client(), values, |address| conn.worker.trusts(address))
}
