//! TLS of the QUIC connections between the testbed's hosts.
//!
//! Clients accept every certificate: both ends run in the same test. Handshakes and packets are those of TLS 1.3, with the
//! cipher suite that every implementation has (RFC 8446, section 9.1).

use std::error::Error;
use std::sync::Arc;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ED25519};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Length of the server's messages after the ServerHello without the certificate and the transport parameters:
/// EncryptedExtensions, the frame of Certificate, CertificateVerify with Ed25519 and Finished with SHA-256 [bytes].
const FLIGHT_FRAME: usize = 10 + 13 + 72 + 36;
/// Object identifier of a comment in a certificate.
const COMMENT: &[u64] = &[2, 16, 840, 1, 113_730, 1, 13];

/// Accepts every certificate whose key signs the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

/// A self-signed certificate with a comment of this length.
fn certificate(key: &KeyPair, comment: usize) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["server".to_owned()])?;
    if comment > 0 {
        params.custom_extensions = vec![CustomExtension::from_oid_content(COMMENT, vec![b' '; comment])];
    }
    params.serial_number = Some(rcgen::SerialNumber::from(vec![1; 8]));
    Ok(params.self_signed(key)?.der().clone())
}

/// Configuration of servers whose messages after the ServerHello have `flight` bytes, if that is not too few for a
/// certificate.
pub fn server(flight: usize) -> Result<QuicServerConfig, Box<dyn Error>> {
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let wanted = flight.saturating_sub(FLIGHT_FRAME);
    let (mut comment, mut made) = (0, certificate(&key, 0)?);
    // The lengths of the fields around the comment grow with it.
    for _ in 0..4 {
        comment = (comment + wanted).saturating_sub(made.len());
        made = certificate(&key, comment)?;
    }
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made], key.into())?;
    config.send_tls13_tickets = 0;
    Ok(config.try_into()?)
}

/// Configuration of clients.
pub fn client() -> Result<QuicClientConfig, Box<dyn Error>> {
    let provider = provider();
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_takes_the_length_that_the_scenario_gives() {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let without = certificate(&key, 0).unwrap().len();
        assert!(without < 400, "{without}");
        for flight in [1500, 3000, 5000] {
            let (mut comment, mut len) = (0, without);
            for _ in 0..4 {
                comment = comment + flight - FLIGHT_FRAME - len;
                len = certificate(&key, comment).unwrap().len();
            }
            assert_eq!(len + FLIGHT_FRAME, flight);
        }
        for flight in [0, 3000] {
            server(flight).unwrap();
        }
    }
}
