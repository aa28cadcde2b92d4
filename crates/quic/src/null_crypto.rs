//! Null crypto: a handshake of TLS's messages and packets of TLS's lengths, without encryption.
//!
//! Messages are a type, a length and a body, as in TLS 1.3 (RFC 8446, section 4). Only the transport parameters have
//! content (RFC 9001, section 8.2); everything else is zeros of the length that TLS would have. Packets end with a tag of 16
//! zeros in place of the AEAD's, and headers are not protected.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::crypto::{
    self, AeadKey, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair,
    Keys, PacketKey, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};

use crate::scone;

/// Length of an AEAD's tag, and of the sample of header protection (RFC 9001, sections 5.3 and 5.4.2) [bytes].
pub const TAG: usize = 16;

/// Type and length of a TLS handshake message (RFC 8446, section 4) [bytes].
const MESSAGE_HEADER: usize = 4;

/// ClientHello without the transport parameters [bytes]: padding of the Initial packet covers it (RFC 9000, section 14.1).
const CLIENT_HELLO: usize = 200;

/// ServerHello, with a share of X25519; and with a pre-shared key as well (RFC 8446, section 4.2.11) [bytes].
const SERVER_HELLO: usize = 90;
const SERVER_HELLO_RESUMED: usize = 96;

/// The server's other messages in a resumed handshake, without the transport parameters: EncryptedExtensions, which accept
/// early data, and Finished [bytes].
const FLIGHT_RESUMED: usize = MESSAGE_HEADER + 2 + 4 + 4 + FINISHED;

/// The tickets that a server sends after the handshake, two (RFC 8446, section 4.6.1) [bytes].
const TICKETS: usize = 2 * (MESSAGE_HEADER + 4 + 4 + 33 + 34 + 10);

/// Type of a ClientHello with early data. Other messages have the type 0.
const EARLY: u32 = 1 << 24;

/// Finished, with a hash of SHA-256 [bytes].
const FINISHED: usize = MESSAGE_HEADER + 32;

/// Steps of a handshake at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client has to send its ClientHello.
    SendHello,
    /// It waits for the ServerHello, or the server for the ClientHello.
    WaitHello,
    /// It takes the handshake's keys; the server sends its ServerHello before.
    TakeHandshakeKeys,
    /// The client waits for the server's other messages.
    WaitFlight,
    /// It sends the messages that are left, and takes the keys of 1-RTT packets.
    TakeDataKeys,
    /// The server waits for the client's Finished.
    WaitFinished,
    /// The server's handshake is complete, and it has to send tickets.
    SendTickets,
    Done,
}

/// One end of a handshake.
struct NullSession {
    side: Side,
    step: Step,
    /// The transport parameters of this end, as written.
    local: Vec<u8>,
    /// Those of the peer; at a client that resumes first the remembered ones.
    remote: Option<TransportParameters>,
    /// True if the client sends 0-RTT packets.
    is_early: bool,
    sends_tickets: bool,
    /// Length of the server's messages after the ServerHello, without the transport parameters [bytes].
    flight: usize,
    /// Received bytes of a message that is incomplete.
    received: Vec<u8>,
    facts: HandshakeFacts,
}

/// Facts of a handshake that quinn does not know.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandshakeFacts {
    /// True if the peer reads SCONE packets.
    pub peer_has_scone: bool,
}

/// Null crypto at both ends.
#[derive(Clone, Copy, Debug)]
pub struct NullCrypto {
    /// Length of the server's messages after the ServerHello, without the transport parameters [bytes]:
    /// EncryptedExtensions, Certificate, CertificateVerify, Finished.
    pub flight: usize,
    /// True if servers send tickets, with which clients resume.
    pub sends_tickets: bool,
    /// Transport parameters of a server that a client has a ticket of: it sends 0-RTT packets (RFC 9001, section 4.6).
    pub remembered: Option<TransportParameters>,
    /// True if this end reads SCONE packets, which a transport parameter tells the peer (draft-ietf-scone-protocol-07, section
    /// 6).
    pub scone: bool,
}

impl NullCrypto {
    fn session(self, side: Side, params: &TransportParameters) -> Box<dyn Session> {
        let mut local = Vec::new();
        params.write(&mut local);
        if self.scone {
            local.extend(scone::WRITTEN_PARAMETER);
        }
        let step = if side == Side::Client { Step::SendHello } else { Step::WaitHello };
        let remote = self.remembered.filter(|_| side.is_client());
        Box::new(NullSession {
            side,
            step,
            local,
            remote,
            is_early: remote.is_some(),
            sends_tickets: self.sends_tickets,
            flight: self.flight,
            received: Vec::new(),
            facts: HandshakeFacts::default(),
        })
    }
}

impl crypto::ClientConfig for NullCrypto {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(self.session(Side::Client, params))
    }
}

impl crypto::ServerConfig for NullCrypto {
    fn initial_keys(&self, _version: u32, _dst_cid: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        Ok(null_keys())
    }

    fn retry_tag(&self, _version: u32, _orig_dst_cid: &ConnectionId, _packet: &[u8]) -> [u8; 16] {
        [0; TAG]
    }

    fn start_session(self: Arc<Self>, _version: u32, params: &TransportParameters) -> Box<dyn Session> {
        self.session(Side::Server, params)
    }
}

/// Adds a message of `len` bytes that carries `params` at its start.
fn write_message(buf: &mut Vec<u8>, kind: u32, params: &[u8], len: usize) {
    let body = (len - MESSAGE_HEADER) + params.len();
    buf.extend_from_slice(&(kind | body as u32).to_be_bytes());
    buf.extend_from_slice(&(params.len() as u16).to_be_bytes());
    buf.extend_from_slice(params);
    buf.resize(buf.len() + body - params.len() - 2, 0);
}

impl NullSession {
    /// Takes a complete message from the received bytes, if there is one: its type, and the transport parameters in it, which may be
    /// empty.
    ///
    /// # Errors
    /// If the parameters are longer than the message.
    fn take_message(&mut self) -> Result<Option<(u32, Vec<u8>)>, TransportError> {
        let Some(header) = self.received.get(..MESSAGE_HEADER) else { return Ok(None) };
        let kind = u32::from(header[0]) << 24;
        let body = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        let Some(message) = self.received.get(MESSAGE_HEADER..MESSAGE_HEADER + body) else { return Ok(None) };
        let params = message.split_first_chunk().and_then(|(len, rest)| {
            let len = usize::from(u16::from_be_bytes(*len));
            rest.get(..len)
        });
        let Some(params) = params.map(<[u8]>::to_vec) else {
            return Err(TransportError {
                reason: "the transport parameters are longer than the message".to_owned(),
                ..TransportErrorCode::PROTOCOL_VIOLATION.into()
            });
        };
        self.received.drain(..MESSAGE_HEADER + body);
        Ok(Some((kind, params)))
    }

    fn read_params(&mut self, params: &[u8]) -> Result<(), TransportError> {
        self.remote = Some(TransportParameters::read(self.side, &mut &*params)?);
        self.facts.peer_has_scone = scone::is_supported(params).map_err(|problem| TransportError {
            reason: problem.to_owned(),
            ..TransportErrorCode::TRANSPORT_PARAMETER_ERROR.into()
        })?;
        Ok(())
    }
}

impl Session for NullSession {
    fn initial_keys(&self, _dst_cid: &ConnectionId, _side: Side) -> Keys {
        null_keys()
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.facts))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.is_early
            .then(|| -> (Box<dyn HeaderKey>, Box<dyn PacketKey>) { (Box::new(NullKey), Box::new(NullKey)) })
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.side.is_client().then_some(self.is_early)
    }

    fn is_handshaking(&self) -> bool {
        !matches!(self.step, Step::SendTickets | Step::Done)
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.received.extend_from_slice(buf);
        while let Some((kind, params)) = self.take_message()? {
            self.step = match (self.side, self.step) {
                (Side::Server, Step::WaitHello) => {
                    self.is_early = kind == EARLY;
                    self.read_params(&params)?;
                    Step::TakeHandshakeKeys
                }
                (Side::Client, Step::WaitHello) => Step::TakeHandshakeKeys,
                (Side::Client, Step::WaitFlight | Step::TakeHandshakeKeys) => {
                    self.read_params(&params)?;
                    Step::TakeDataKeys
                }
                (_, Step::WaitFinished) if self.sends_tickets => Step::SendTickets,
                (_, Step::WaitFinished) => Step::Done,
                (_, step) => step,
            };
        }
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.remote)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        match (self.side, self.step) {
            (_, Step::SendHello) => {
                write_message(buf, if self.is_early { EARLY } else { 0 }, &self.local, CLIENT_HELLO);
                self.step = Step::WaitHello;
                None
            }
            (Side::Client, Step::TakeHandshakeKeys) => {
                self.step = Step::WaitFlight;
                Some(null_keys())
            }
            (Side::Server, Step::TakeHandshakeKeys) => {
                write_message(buf, 0, &[], if self.is_early { SERVER_HELLO_RESUMED } else { SERVER_HELLO });
                self.step = Step::TakeDataKeys;
                Some(null_keys())
            }
            (Side::Client, Step::TakeDataKeys) => {
                write_message(buf, 0, &[], FINISHED);
                self.step = Step::Done;
                Some(null_keys())
            }
            (Side::Server, Step::TakeDataKeys) => {
                let flight = if self.is_early { FLIGHT_RESUMED } else { self.flight };
                write_message(buf, 0, &self.local, flight);
                self.step = Step::WaitFinished;
                Some(null_keys())
            }
            (_, Step::SendTickets) => {
                write_message(buf, 0, &[], TICKETS);
                self.step = Step::Done;
                None
            }
            _ => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(KeyPair { local: Box::new(NullKey), remote: Box::new(NullKey) })
    }

    fn is_valid_retry(&self, _orig_dst_cid: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        true
    }

    fn export_keying_material(
        &self,
        _output: &mut [u8],
        _label: &[u8],
        _context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

/// A key that leaves packets as they are.
pub struct NullKey;

fn null_keys() -> Keys {
    Keys {
        header: KeyPair { local: Box::new(NullKey), remote: Box::new(NullKey) },
        packet: KeyPair { local: Box::new(NullKey), remote: Box::new(NullKey) },
    }
}

impl PacketKey for NullKey {
    fn encrypt(&self, _packet: u64, _buf: &mut [u8], _header_len: usize) {}

    fn decrypt(&self, _packet: u64, _header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        let len = payload.len().checked_sub(TAG).ok_or(CryptoError)?;
        payload.truncate(len);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

impl HeaderKey for NullKey {
    fn decrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn encrypt(&self, _pn_offset: usize, _packet: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        TAG
    }
}

impl HmacKey for NullKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        // Stateless reset tokens have to differ, and depend on the connection id only.
        signature_out.fill(0);
        for (i, byte) in data.iter().enumerate() {
            signature_out[i % TAG] ^= byte.rotate_left(i as u32 % 8) ^ 0x5a;
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = vec![0; self.signature_len()];
        self.sign(data, &mut expected);
        if expected == signature { Ok(()) } else { Err(CryptoError) }
    }
}

impl HandshakeTokenKey for NullKey {
    fn aead_from_hkdf(&self, _random_bytes: &[u8]) -> Box<dyn AeadKey> {
        Box::new(Self)
    }
}

impl AeadKey for NullKey {
    fn seal(&self, data: &mut Vec<u8>, _additional_data: &[u8]) -> Result<(), CryptoError> {
        data.resize(data.len() + TAG, 0);
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], _additional_data: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let len = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        Ok(&mut data[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages of no byte, of one, and with parameters longer than the message.
    #[test]
    fn messages_shorter_than_their_parameters_are_refused() {
        let crypto = NullCrypto { flight: 1000, sends_tickets: false, remembered: None, scone: false };
        let params = TransportParameters::read(Side::Server, &mut &[][..]).unwrap();
        for bytes in
            [&[0, 0, 0, 0][..], &[0, 0, 0, 1, 7], &[0, 0, 0, 2, 0xff, 0xff], &[0, 0, 0, 4, 0, 3, 1, 2]]
        {
            let mut session = crypto.session(Side::Server, &params);
            assert!(session.read_handshake(bytes).is_err(), "{bytes:?}");
            // The rest of a message may follow.
            let mut session = crypto.session(Side::Server, &params);
            assert_eq!(session.read_handshake(&bytes[..3]).ok(), Some(false), "{bytes:?}");
        }
    }
}
