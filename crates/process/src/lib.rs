//! What every Dormouse process has, whatever its role.
//!
//! * [`identity`]: who a process is, as a URI in its certificate.
//! * [`tls`]: the cluster's certificate authority, certificates of the roles, TLS configurations.
//! * [`lifeline`]: ends a process when the supervisor that started it is gone.
//! * [`control_messages`]: what proxies and SQL nodes say to control and hear from it.
//! * [`logging`], [`metrics`], [`http`], [`signals`]: structured logs, Prometheus metrics, HTTP servers with
//!   bounds, orderly ends.
//! * [`memory`]: how much of it there is.
//!
//! It knows none of the roles and keeps little memory: it is linked into every SQL node.

pub mod control_messages;
pub mod http;
pub mod identity;
pub mod lifeline;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod signals;
pub mod tls;
