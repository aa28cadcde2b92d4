//! Authentication of the ends: each has a key and a self-signed certificate, and trusts only the certificates of its peers.
//!
//! A certificate only carries a public key. It is compared byte by byte, so its names and dates mean nothing, and a wrong
//! clock locks nobody out. TLS 1.3 proves that the peer holds the key.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::hmac;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::PeerId;

/// ALPN protocol name.
const ALPN: &[u8] = b"bentpipe-spacelink/1";

/// Key and certificate of an end.
pub struct Identity {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// Certificate of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate(pub(super) CertificateDer<'static>);

/// Error in a key or a certificate: the file and the problem.
#[derive(Debug)]
pub struct KeyError(String);

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeyError {}

impl KeyError {
    /// The certificate of the only peer is missing.
    pub(super) fn no_peer() -> Self {
        Self("the peer's certificate is missing".to_owned())
    }

    fn of(path: &Path, what: &dyn std::fmt::Display) -> Self {
        Self(format!("{}: {what}", path.display()))
    }
}

impl Identity {
    /// Generates a key and a certificate for `name`.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn generate(name: &str) -> Result<Self, KeyError> {
        let (certificate, key) = make(name).map_err(|e| KeyError(e.to_string()))?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|e| KeyError(e.to_owned()))?;
        Ok(Self { certificate: certificate.der().clone(), key })
    }

    /// Reads the two files that [`keygen`] writes.
    ///
    /// # Errors
    /// If a file cannot be read or parsed.
    pub fn read(key: &Path, certificate: &Path) -> Result<Self, KeyError> {
        let Certificate(certificate) = Certificate::read(certificate)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| KeyError::of(key, &e))?;
        Ok(Self { certificate, key })
    }

    /// The certificate, for the peer.
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        Certificate(self.certificate.clone())
    }

    /// A secret for `purpose`, derived from the key: the same after a restart.
    pub(super) fn secret(&self, purpose: &str) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.key.secret_der()), purpose.as_bytes())
    }
}

impl Certificate {
    /// Reads a certificate (PEM).
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        CertificateDer::from_pem_file(path).map(Self).map_err(|e| KeyError::of(path, &e))
    }
}

/// Ed25519 signatures, and so handshakes, have a fixed length.
fn make(name: &str) -> Result<(rcgen::Certificate, rcgen::KeyPair), rcgen::Error> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let mut parameters = rcgen::CertificateParams::new(vec![])?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    Ok((parameters.self_signed(&key)?, key))
}

/// Writes `NAME.key` (mode 0600) and `NAME.crt` into the folder `dir`, which is created if missing. Returns their paths.
/// Existing files are kept unless `overwrite` is true.
///
/// # Errors
/// If a file exists or cannot be written.
pub fn keygen(dir: &Path, name: &str, overwrite: bool) -> io::Result<[PathBuf; 2]> {
    fs::create_dir_all(dir)?;
    let (certificate, key) = make(name).map_err(io::Error::other)?;
    let paths = [dir.join(format!("{name}.key")), dir.join(format!("{name}.crt"))];
    if !overwrite && let Some(there) = paths.iter().find(|path| path.exists()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists already", there.display()),
        ));
    }
    for (path, text, mode) in [(&paths[0], key.serialize_pem(), 0o600), (&paths[1], certificate.pem(), 0o644)]
    {
        write(path, text.as_bytes(), mode, overwrite)?;
    }
    Ok(paths)
}

/// Writes a file that has its mode from the beginning.
fn write(path: &Path, bytes: &[u8], mode: u32, overwrite: bool) -> io::Result<()> {
    let create = |path: &Path| -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(file)
    };
    if !overwrite {
        return create(path).map(drop);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    create(&beside)?;
    fs::rename(&beside, path)
}

/// Maximum number of refused certificates kept.
const REFUSED: usize = 64;

/// The certificates of an end's peers, which may change while the end runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Trusted {
    known: Arc<RwLock<BTreeMap<Vec<u8>, PeerId>>>,
    /// Certificates that others have shown, the latest last. Nobody has proved them.
    refused: Arc<Mutex<VecDeque<Certificate>>>,
}

impl Trusted {
    /// One peer.
    pub(super) fn only(certificate: &Certificate) -> Self {
        let trusted = Self::default();
        trusted.insert(certificate, PeerId(0));
        trusted
    }

    pub(super) fn insert(&self, certificate: &Certificate, peer: PeerId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(certificate.0.to_vec(), peer);
    }

    pub(super) fn remove(&self, peer: PeerId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, other| *other != peer);
    }

    /// The peer with a certificate.
    pub(super) fn peer(&self, certificate: &CertificateDer<'_>) -> Option<PeerId> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(certificate.as_ref()).copied()
    }

    fn refuse(&self, certificate: &CertificateDer<'_>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REFUSED {
            refused.pop_front();
        }
        refused.push_back(Certificate(certificate.clone().into_owned()));
    }

    /// Takes the certificate that was refused first.
    pub(super) fn take_refused(&self) -> Option<Certificate> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Verifier that trusts these certificates.
#[derive(Debug)]
struct Pinned {
    trusted: Trusted,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        if others.is_empty() && self.trusted.peer(certificate).is_some() {
            Ok(())
        } else {
            self.trusted.refuse(certificate);
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
        }
    }
}

/// Checks signatures as the provider does; both kinds of verifiers have the same methods for that.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    verify_signatures!();
}

fn pinned(trusted: Trusted) -> (Arc<Pinned>, Arc<CryptoProvider>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    (Arc::new(Pinned { trusted, provider: provider.clone() }), provider)
}

/// The peer that has proved its certificate in a handshake.
pub(super) fn peer_of(conn: &quinn_proto::Connection, trusted: &Trusted) -> Option<PeerId> {
    let identity = conn.crypto_session().peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    trusted.peer(certificates.first()?)
}

/// TLS configuration of the listening end.
pub(super) fn server(identity: &Identity, peers: Trusted) -> Result<QuicServerConfig, KeyError> {
    let (pinned, provider) = pinned(peers);
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| {
            builder
                .with_client_cert_verifier(pinned)
                .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        })
        .map_err(|e| KeyError(e.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No resumption: every handshake authenticates both ends.
    config.send_tls13_tickets = 0;
    QuicServerConfig::try_from(config).map_err(|e| KeyError(e.to_string()))
}

/// TLS configuration of the connecting end.
pub(super) fn client(identity: &Identity, peer: &Certificate) -> Result<QuicClientConfig, KeyError> {
    let (pinned, provider) = pinned(Trusted::only(peer));
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| {
            builder
                .dangerous()
                .with_custom_certificate_verifier(pinned)
                .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        })
        .map_err(|e| KeyError(e.to_string()))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    QuicClientConfig::try_from(config).map_err(|e| KeyError(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Runs a handshake between two ends, each with a certificate, a key and the trusted certificate.
    fn shake(server: (&Identity, &Identity), client: (&Identity, &Identity)) -> Result<(), Error> {
        let certified = |own: &Identity, key: &Identity| {
            let key = rustls::crypto::ring::sign::any_supported_type(&key.key).unwrap();
            let certified = rustls::sign::CertifiedKey::new(vec![own.certificate.clone()], key);
            Arc::new(rustls::sign::SingleCertAndKey::from(certified))
        };
        let ((of_server, server_key), (of_client, client_key)) = (server, client);
        let (trusts_client, provider) = pinned(Trusted::only(&of_client.certificate()));
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(trusts_client)
            .with_cert_resolver(certified(of_server, server_key));
        let (trusts_server, provider) = pinned(Trusted::only(&of_server.certificate()));
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(trusts_server)
            .with_client_cert_resolver(certified(of_client, client_key));
        let mut server = rustls::ServerConnection::new(Arc::new(server))?;
        let mut client =
            rustls::ClientConnection::new(Arc::new(client), ServerName::try_from("spacelink").unwrap())?;
        for _ in 0..4 {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets()?;
            bytes.clear();
            server.write_tls(&mut bytes).unwrap();
            client.read_tls(&mut &bytes[..]).unwrap();
            client.process_new_packets()?;
        }
        assert!(!server.is_handshaking() && !client.is_handshaking());
        Ok(())
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let [server, client, thief] =
            ["server", "client", "thief"].map(|name| Identity::generate(name).unwrap());
        shake((&server, &server), (&client, &client)).unwrap();
        for stolen in
            [shake((&server, &thief), (&client, &client)), shake((&server, &server), (&client, &thief))]
        {
            assert_eq!(stolen, Err(Error::InvalidCertificate(CertificateError::BadSignature)));
        }
    }

    #[test]
    fn a_removed_certificate_is_not_trusted() {
        let [first, second] = ["first", "second"].map(|name| Identity::generate(name).unwrap().certificate());
        let trusted = Trusted::default();
        trusted.insert(&first, PeerId(4));
        trusted.insert(&second, PeerId(5));
        trusted.remove(PeerId(4));
        assert_eq!((trusted.peer(&first.0), trusted.peer(&second.0)), (None, Some(PeerId(5))));
    }

    #[test]
    fn the_latest_refused_certificates_are_kept() {
        let trusted = Trusted::default();
        let shown: Vec<_> = (0..=REFUSED as u8).map(|n| CertificateDer::from(vec![n])).collect();
        shown.iter().for_each(|certificate| trusted.refuse(certificate));
        let kept: Vec<_> = std::iter::from_fn(|| trusted.take_refused()).map(|kept| kept.0).collect();
        assert_eq!(kept, shown[1..]);
    }

    /// A folder where a file was to be written first: no file can replace it.
    #[test]
    fn a_file_that_cannot_be_removed_is_reported() {
        let dir = std::env::temp_dir().join(format!("bentpipe-keygen-in-the-way-{}", std::process::id()));
        fs::create_dir_all(dir.join("gateway.key.new")).unwrap();
        let error = keygen(&dir, "gateway", true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory, "{error}");
        assert!(!dir.join("gateway.key").exists());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn keys_are_private_and_not_overwritten() {
        let dir = std::env::temp_dir().join(format!("bentpipe-keygen-{}", std::process::id()));
        let [key, certificate] = keygen(&dir, "gateway", false).unwrap();
        assert_eq!(
            (key.file_name().unwrap(), certificate.file_name().unwrap()),
            ("gateway.key".as_ref(), "gateway.crt".as_ref())
        );
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&key), mode(&certificate) & 0o644), (0o600, 0o644));
        let before = fs::read(&key).unwrap();
        let error = keygen(&dir, "gateway", false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("gateway.key"));
        assert_eq!(fs::read(&key).unwrap(), before);
        // A certificate alone is not overwritten either.
        fs::remove_file(&key).unwrap();
        assert!(keygen(&dir, "gateway", false).is_err());
        keygen(&dir, "gateway", true).unwrap();
        assert_ne!(fs::read(&key).unwrap(), before);
        assert_eq!(mode(&key), 0o600);
        // The files can be read and match.
        let identity = Identity::read(&key, &certificate).unwrap();
        server(&identity, Trusted::only(&identity.certificate())).unwrap();
        let other = Identity::generate("other").unwrap();
        let mixed = Identity { key: other.key.clone_key(), ..identity };
        assert!(server(&mixed, Trusted::only(&other.certificate())).is_err());
        let wrong = Identity::read(&certificate, &key).map(drop).unwrap_err().to_string();
        assert!(wrong.contains("gateway.key"), "{wrong}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
