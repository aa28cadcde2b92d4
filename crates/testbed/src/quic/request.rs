//! Requests on streams: the number of bytes wanted (all ones: endless), the length of the request, and padding up to that.
//!
//! A client that wants several objects on a stream sends several requests. A response is the content from where the last
//! one ended, without a header, as in the simulator.

/// Length of a request without padding [bytes].
const HEADER: usize = 12;
/// Longest request [bytes].
const LONGEST: usize = 1 << 20;

/// A request for `bytes`, or for an endless object, of `size` bytes if that is enough.
#[must_use]
pub fn request(bytes: Option<u64>, size: u64) -> Vec<u8> {
    let len = usize::try_from(size).unwrap_or(LONGEST).clamp(HEADER, LONGEST);
    let mut request = Vec::with_capacity(len);
    request.extend(bytes.unwrap_or(u64::MAX).to_be_bytes());
    request.extend((len as u32).to_be_bytes());
    request.resize(len, 0);
    request
}

/// Received part of the requests on a stream.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Requests before this position were taken.
    taken: usize,
}

impl Inbox {
    /// Takes bytes that have arrived; false if they are too many.
    pub fn receive(&mut self, at: u64, bytes: &[u8]) -> bool {
        let end = usize::try_from(at).unwrap_or(usize::MAX).saturating_add(bytes.len());
        if end > self.taken.saturating_add(2 * LONGEST) {
            return false;
        }
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[end - bytes.len()..end].copy_from_slice(bytes);
        true
    }

    /// Takes the next request, if it is among the `readable` bytes: its length [bytes], and the bytes wanted (`None`: endless).
    pub fn take(&mut self, readable: u64) -> Option<(u64, Option<u64>)> {
        let rest = self.bytes.get(self.taken..)?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (len, _) = rest.split_first_chunk()?;
        let len = (u32::from_be_bytes(*len) as usize).clamp(HEADER, LONGEST);
        if readable < len as u64 {
            return None;
        }
        self.taken += len;
        Some((len as u64, Some(u64::from_be_bytes(*bytes)).filter(|bytes| *bytes != u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_in_order_once_they_are_complete() {
        let requests = [request(Some(7), 400), request(None, 0)].concat();
        let mut inbox = Inbox::default();
        assert!(inbox.receive(100, &requests[100..]));
        assert_eq!(inbox.take(0), None);
        assert!(inbox.receive(0, &requests[..100]));
        assert_eq!(inbox.take(399), None);
        assert_eq!(inbox.take(412), Some((400, Some(7))));
        assert_eq!(inbox.take(12), Some((12, None)));
        assert_eq!(inbox.take(0), None);
        assert!(!inbox.receive(u64::MAX, &[0]));
    }
}
