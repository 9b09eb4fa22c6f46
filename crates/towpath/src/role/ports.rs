//! Tells a taken port before anything is started.
//!
//! Gateways listen with `SO_REUSEPORT`, where a second process of the same user would silently share the port; a plain
//! bind fails then.

use crate::config::{Role, Settings};
use crate::exit::{Exit, Failure, Outcome, reason};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Where a gateway is when nothing else is said.
pub(super) const USUAL_GATEWAY: &str = "http://127.0.0.1:8080";

/// Without an address for metrics, `up` has them at the port after the API's.
pub(super) fn fill_in(settings: &mut Settings) {
    let api = settings.api.listen.port();
    let port = if api == 0 { 0 } else { api.saturating_add(1) };
    let beside = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    settings.gateway.config.admin.get_or_insert_with(|| beside.to_string());
}

/// The flag that says an address of the gateway.
pub(super) fn flag_of(settings: &Settings, address: SocketAddr) -> &'static str {
    let admin = settings.gateway.config.admin.as_ref().and_then(|text| text.parse().ok());
    if admin == Some(address) { "--admin-listen" } else { "--listen" }
}

/// Checks every address that the role will listen at.
pub(super) fn check(role: Role, settings: &Settings) -> Outcome {
    if matches!(role, Role::Up | Role::Gateway) {
        for text in &settings.gateway.config.listen {
            if let Ok(address) = text.parse() {
                check_free(address, "--listen")?;
            }
        }
        let stream = &settings.gateway.config.stream;
        for text in stream.tcp.iter().chain(&stream.tls).chain(&stream.passthrough) {
            if let Ok(address) = text.parse() {
                check_free(address, "gateway.stream")?;
            }
        }
        if let Some(address) = settings.gateway.config.admin.as_ref().and_then(|text| text.parse().ok()) {
            check_free(address, "--admin-listen")?;
        }
    }
    match role {
        Role::Up => check_free(settings.api.listen, "--api-listen"),
        Role::Manager => check_free(settings.api.listen, "--listen"),
        Role::Gateway | Role::Cell => Ok(()),
    }
}

/// Fails when something listens at the address, or it cannot be listened at. `flag` is where another one can be said.
fn check_free(address: SocketAddr, flag: &str) -> Outcome {
    match TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(address, flag, &error)),
    }
}

/// Why an address cannot be listened at. `flag` is where another one can be said.
pub(super) fn refused(address: SocketAddr, flag: &str, error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AddrInUse => Failure::hinted(
            Exit::Conflict,
            format!("{address} is taken: another process listens there"),
            format!("stop it, or choose another address with {flag}"),
        ),
        ErrorKind::PermissionDenied => Failure::hinted(
            Exit::Usage,
            format!("{address} may not be listened at: {}", reason(error)),
            format!("ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with {flag}"),
        ),
        ErrorKind::AddrNotAvailable => Failure::hinted(
            Exit::Usage,
            format!("{address} is not an address of this machine"),
            format!("choose another with {flag}"),
        ),
        _ => Failure::new(Exit::Failed, format!("{address} cannot be listened at: {}", reason(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_said() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let failure = check_free(held.local_addr().unwrap(), "--listen").unwrap_err();
        assert_eq!(failure.exit, Exit::Conflict);
        assert!(
            failure.lines[0].contains("is taken") && failure.lines[0].contains("--listen"),
            "{failure:?}"
        );
    }
}
