//! TLS for those who have no gateway in front: certificate and key from PEM files, HTTP/2 by agreement.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocols that are offered, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Accepts TLS on a connection.
pub type Acceptor = TlsAcceptor;

/// Accepts TLS with the certificate chain and the key of these files.
pub fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let fault = |path: &Path, what: String| format!("TLS: {}: {what}", path.display());
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect)
        .map_err(|e| fault(certificates, e.to_string()))?;
    if chain.is_empty() {
        return Err(fault(certificates, "has no certificate in PEM form".to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| fault(key, e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| fault(certificates, format!("does not go with {}: {e}", key.display())))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(TlsAcceptor::from(Arc::new(config)))
}
