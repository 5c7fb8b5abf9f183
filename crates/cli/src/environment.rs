//! Settings from environment variables, and variables that only look like settings.
//!
//! An empty variable counts as not set. Kubernetes sets variables for each service of a namespace.
//! Those of a service named `terrace` have the same prefix as the settings:
//! `TERRACE_PORT=tcp://10.0.0.1:6379`, `TERRACE_SERVICE_HOST` and so on. They are ignored, and
//! `serve` logs that.

use std::{env, ffi::OsString};

use terrace_server::config::{Kind, Setting, TABLE};

/// The variable of `serve --password-file`.
pub(crate) const PASSWORD_FILE: &str = "TERRACE_PASSWORD_FILE";

/// The value that the environment gives a setting, if any; the error names the variable and its
/// valid values.
pub(crate) fn value(setting: &Setting) -> Result<Option<String>, String> {
    let Some(value) = variable(setting.env).filter(|value| !is_from_kubernetes(setting.env, value)) else {
        return Ok(None);
    };
    let text = value.to_str().filter(|text| setting.check(text).is_ok());
    text.map(|text| Some(text.into())).ok_or_else(|| {
        let shown = match setting.kind {
            Kind::Password => "(a secret)".into(),
            _ => value.to_string_lossy(),
        };
        format!("the environment variable {}={shown}: it must be {}", setting.env, setting.kind.describe())
    })
}

/// The value of a variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Settings whose variables Kubernetes has set, each with the value.
pub(crate) fn taken_by_kubernetes() -> Vec<(&'static Setting, OsString)> {
    let taken = |setting: &'static Setting| {
        let value = variable(setting.env).filter(|value| is_from_kubernetes(setting.env, value))?;
        Some((setting, value))
    };
    TABLE.iter().filter(|setting| !setting.env.is_empty()).filter_map(taken).collect()
}

/// Variables with the prefix of settings that are not settings: most likely misspelt.
pub(crate) fn unknown() -> Vec<String> {
    let is_known = |name: &str| name == PASSWORD_FILE || TABLE.iter().any(|setting| setting.env == name);
    let mut unknown: Vec<String> = env::vars_os()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, value)| {
            name.starts_with("TERRACE_") && !is_known(name) && !is_from_kubernetes(name, value)
        })
        .map(|(name, _)| name)
        .collect();
    unknown.sort_unstable();
    unknown
}

/// Whether Kubernetes sets this variable for a service.
fn is_from_kubernetes(name: &str, value: &OsString) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|protocol| value.to_string_lossy().to_ascii_lowercase().starts_with(protocol));
    is_address && is_port_name(name)
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || has_port_of_protocol(name)
}

/// Whether the name is like `TERRACE_PORT` or `TERRACE_PORT_6379_TCP`.
fn is_port_name(name: &str) -> bool {
    name.ends_with("_PORT") || has_port_of_protocol(name)
}

/// Whether the name is like `TERRACE_PORT_6379_TCP` or `TERRACE_PORT_6379_TCP_ADDR`.
fn has_port_of_protocol(name: &str) -> bool {
    name.match_indices("_PORT_").any(|(at, found)| {
        let rest = &name[at + found.len()..];
        let number = rest.split('_').next().unwrap_or_default();
        let protocol = rest[number.len()..].split('_').nth(1).unwrap_or_default();
        number.parse::<u16>().is_ok() && ["TCP", "UDP", "SCTP"].contains(&protocol)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_variables_are_distinguished_from_settings() {
        for (name, value) in [
            ("TERRACE_PORT", "tcp://10.0.0.1:6379"),
            ("TERRACE_METRICS_PORT", "udp://[fd00::1]:9121"),
            ("TERRACE_SERVICE_HOST", "10.0.0.1"),
            ("TERRACE_SERVICE_PORT", "6379"),
            ("TERRACE_SERVICE_PORT_REDIS", "6379"),
            ("TERRACE_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("TERRACE_PORT_6379_TCP_PROTO", "tcp"),
            ("TERRACE_PORT_6379_TCP_PORT", "6379"),
            ("TERRACE_CACHE_PORT_6379_UDP_ADDR", "10.0.0.1"),
        ] {
            assert!(is_from_kubernetes(name, &value.into()), "{name}={value}");
        }
        for (name, value) in [
            ("TERRACE_PORT", "6379"),
            ("TERRACE_PORT", "10.0.0.1:6379"),
            ("TERRACE_POOL", "tcp://10.0.0.1:6379"),
            ("TERRACE_PORT_TCP", "6379"),
            ("TERRACE_PROT", "6379"),
        ] {
            assert!(!is_from_kubernetes(name, &value.into()), "{name}={value}");
        }
    }
}
