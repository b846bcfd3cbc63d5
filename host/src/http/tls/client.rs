//! TLS for the commands that ask a host: one connection, blocking, whose other side must be who it is meant to be.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A connection; its socket is `sock`.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A connection to `name` over that socket. It trusts the certificates of the file, or those of the system. Nothing is
/// sent yet: what the other side shows is looked at with the first bytes.
///
/// # Errors
/// A file that has no certificates, or a name that no certificate can have.
pub fn connect(name: &str, socket: TcpStream, trusted: Option<&Path>) -> Result<Connection, String> {
    let system = || SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file());
    let path = trusted.map(Path::to_owned).or_else(system);
    let path = path.ok_or("this system has no list of authorities; name a file with --ca")?;
    let fault = |what: String| format!("TLS: {}: {what}", path.display());
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(&path).and_then(Iterator::collect).map_err(|e| fault(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    let (taken, odd) = roots.add_parsable_certificates(certificates);
    // A system's list may have a few that are odd; a file that was named may not.
    if taken == 0 || (odd > 0 && trusted.is_some()) {
        return Err(fault(format!("has {taken} certificates in PEM form and {odd} that are none")));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let shown = name.to_owned();
    let name = ServerName::try_from(shown).map_err(|_| format!("TLS: {name:?} is no name of a host"))?;
    let client = ClientConnection::new(Arc::new(config), name).map_err(|e| format!("TLS: {e}"))?;
    Ok(StreamOwned::new(client, socket))
}
