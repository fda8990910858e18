//! `dormouse cert`: the cluster's certificates.

use crate::data_dir::{create_certificates, create_role_certificates};
use crate::error::{Failure, Outcome};
use crate::output::line;
use process::identity::Identity;
use process::tls::{Authority, CertificatePem};
use std::path::{Path, PathBuf};

/// Arguments of `dormouse cert`.
#[derive(Debug, clap::Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make an authority and a certificate per role, where they are missing
    Create {
        /// Directory of the certificates
        #[arg(long, value_name = "DIR")]
        certs: PathBuf,
        /// Further host name or address the proxy's certificate is valid for
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
    },
    /// Make the certificates of all roles anew; the authority stays
    Renew {
        /// Directory of the certificates
        #[arg(long, value_name = "DIR")]
        certs: PathBuf,
        /// Further host name or address the proxy's certificate is valid for
        #[arg(long, value_name = "NAME")]
        name: Vec<String>,
    },
    /// Make one certificate for kv, control, proxy, warm or tenant/ID
    Issue {
        /// Who it is for
        identity: String,
        /// Directory with the authority
        #[arg(long, value_name = "DIR")]
        certs: PathBuf,
        /// Directory to write it to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: &CertArgs) -> Outcome {
    match &args.command {
        Command::Create { certs, name } => {
            std::fs::create_dir_all(certs).map_err(|error| Failure::io("create", certs, &error))?;
            report(certs, &create_certificates(certs, name)?)
        }
        Command::Renew { certs, name } => report(certs, &create_role_certificates(certs, true, name)?),
        Command::Issue { identity, certs, out } => issue(identity, certs, out),
    }
}

fn report(directory: &Path, made: &[String]) -> Outcome {
    if made.is_empty() {
        return line("nothing was missing");
    }
    made.iter().try_for_each(|name| line(directory.join(format!("{name}.pem")).display()))
}

fn issue(name: &str, certs: &Path, out: &Path) -> Outcome {
    let identity: Identity = format!("dormouse://{name}").parse().map_err(|_| {
        Failure::usage(format!("\"{name}\" is no identity"))
            .hint("Write kv, control, proxy, warm or tenant/ID.")
    })?;
    let authority = Authority::from_pem(CertificatePem::load(certs, "ca")?)?;
    let file = name.replace('/', "-");
    authority.issue(identity)?.save(out, &file)?;
    report(out, &[file])
}
