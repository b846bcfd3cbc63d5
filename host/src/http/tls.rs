//! TLS for those who have no gateway in front: certificate and key from PEM files, HTTP/2 by agreement.

pub mod client;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The protocols that are offered, the better first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Accepts TLS with the certificate chain and the key of two files, as they were when they were last read. Clones are the
/// same.
#[derive(Clone)]
pub struct Certificates {
    files: Arc<(PathBuf, PathBuf)>,
    now: Arc<RwLock<TlsAcceptor>>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read, or a chain and a key that do not go together.
    pub fn read(certificates: &Path, key: &Path) -> Result<Certificates, String> {
        let now = Arc::new(RwLock::new(acceptor(certificates, key)?));
        Ok(Certificates { files: Arc::new((certificates.to_owned(), key.to_owned())), now })
    }

    /// Reads the files again. Nothing changes before what is answered is put in place.
    ///
    /// # Errors
    /// As for [`Certificates::read`].
    pub fn renewed(&self) -> Result<Renewed, String> {
        acceptor(&self.files.0, &self.files.1).map(Renewed)
    }

    /// New connections are shown these; those there are keep what they have.
    pub fn replace(&self, renewed: Renewed) {
        *self.now.write() = renewed.0;
    }

    /// What is shown to a connection that comes now.
    pub(super) fn now(&self) -> TlsAcceptor {
        self.now.read().clone()
    }
}

/// Certificates that were read again.
pub struct Renewed(TlsAcceptor);

fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, String> {
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
