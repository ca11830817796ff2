//! Capabilities: the tokens by which a tool proves that it may answer a call.
//!
//! In: the key of the data directory, a thread and a call. Out: a token for that thread and call until it expires. Always:
//! a token cannot be made without the key, says itself what it is good for, and is good for nothing else.
//!
//! A token is base64url (RFC 4648, section 5, no padding) of: thread (16 bytes), the call's number (8) and index (2), expiry
//! in milliseconds since the Unix epoch (8), big-endian, and the first 16 bytes of their HMAC-SHA256 (RFC 2104, RFC 6234).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use slackwater_core::id::{CallId, ThreadId};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const KEY_LENGTH: usize = 32;
const CLAIM_LENGTH: usize = 16 + 8 + 2 + 8;
const MAC_LENGTH: usize = 16;

/// The key with which a shard's capabilities are made and checked. A clone is the same key.
#[derive(Clone)]
pub struct CapabilityKey([u8; KEY_LENGTH]);

impl std::fmt::Debug for CapabilityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CapabilityKey(secret)")
    }
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToken {
    /// It is not of the form of a token.
    #[error("this is not a capability token; use the callback URL exactly as it was given")]
    Malformed,
    /// It was not made with this key.
    #[error("this capability token was not made by this runtime, or was altered")]
    Forged,
    /// Its time is over.
    #[error("this capability token has expired")]
    Expired,
}

impl CapabilityKey {
    /// The key kept in a data directory as `capability.key`, readable by its owner only; made at the first start.
    ///
    /// # Errors
    /// When the file cannot be read or made, or is not a key.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join("capability.key");
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if !path.try_exists().map_err(named)? {
            // Written aside and linked: a crash leaves no half key, and of processes that start together one wins.
            let aside = directory.join(format!("capability.key.{}", uuid::Uuid::new_v4()));
            let mut file = OpenOptions::new();
            let mut file = file.write(true).create(true).truncate(true).mode(0o600).open(&aside).map_err(named)?;
            file.write_all(&Self::random()?.0).and_then(|()| file.sync_all()).map_err(named)?;
            match fs::hard_link(&aside, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(named(error)),
                _ => fs::remove_file(&aside).map_err(named)?,
            }
            fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(named)?;
        }
        let key: Result<[u8; KEY_LENGTH], _> = fs::read(&path).map_err(named)?.try_into();
        let key = key.map_err(|_| {
            let what = "is not a key of 32 bytes; restore it from a backup, or remove it, which ends the callbacks that tools still hold";
            named(io::Error::new(io::ErrorKind::InvalidData, what))
        })?;
        if fs::metadata(&path).map_err(named)?.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(named)?;
        }
        Ok(Self(key))
    }

    /// A key that dies with the process, for a runtime without a directory.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; KEY_LENGTH];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self(key))
    }

    /// Makes the token for a call.
    pub fn token(&self, thread: ThreadId, call: CallId, expires_ms: u64) -> String {
        let mut token = Vec::with_capacity(CLAIM_LENGTH + MAC_LENGTH);
        token.extend_from_slice(thread.as_bytes());
        token.extend_from_slice(&call.number.to_be_bytes());
        token.extend_from_slice(&call.index.to_be_bytes());
        token.extend_from_slice(&expires_ms.to_be_bytes());
        let mac = self.mac(&token).finalize().into_bytes();
        token.extend_from_slice(&mac[..MAC_LENGTH]);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Checks a token and says what it is good for.
    ///
    /// # Errors
    /// When it is no token of this key, or its time is over.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<(ThreadId, CallId), BadToken> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| BadToken::Malformed)?;
        if bytes.len() != CLAIM_LENGTH + MAC_LENGTH {
            return Err(BadToken::Malformed);
        }
        let (claim, mac) = bytes.split_at(CLAIM_LENGTH);
        self.mac(claim).verify_truncated_left(mac).map_err(|_| BadToken::Forged)?;
        let part = |from: usize, to: usize| &claim[from..to];
        let thread: [u8; 16] = part(0, 16).try_into().expect("invariant: a claim has its length");
        let number = u64::from_be_bytes(part(16, 24).try_into().expect("invariant: a claim has its length"));
        let index = u16::from_be_bytes(part(24, 26).try_into().expect("invariant: a claim has its length"));
        let expires_ms = u64::from_be_bytes(part(26, 34).try_into().expect("invariant: a claim has its length"));
        if now_ms > expires_ms {
            return Err(BadToken::Expired);
        }
        Ok((ThreadId::from_bytes(thread), CallId { number, index }))
    }

    fn mac(&self, claim: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("invariant: HMAC takes keys of any length");
        mac.update(claim);
        mac
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    const CALL: CallId = CallId { number: 7, index: 1 };

    fn thread() -> ThreadId {
        ThreadId::from_bytes([9; 16])
    }

    #[test]
    fn origin_is_proven() {
        let key = CapabilityKey::random().unwrap();
        let token = key.token(thread(), CALL, 1_000);
        assert_eq!(key.verify(&token, 1_000), Ok((thread(), CALL)));
        assert_eq!(key.verify(&token, 1_001), Err(BadToken::Expired));
        assert_eq!(CapabilityKey::random().unwrap().verify(&token, 0), Err(BadToken::Forged));
        assert_eq!(key.verify("abc", 0), Err(BadToken::Malformed));
        // Every bit counts.
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key.verify(&URL_SAFE_NO_PAD.encode(altered), 0), Err(BadToken::Forged), "bit {bit}");
        }
    }

    #[test]
    fn of_many_that_start_together_one_makes_the_key() {
        let directory = tempfile::tempdir().unwrap();
        let keys: Vec<_> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| CapabilityKey::open(directory.path()))).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        let token = CapabilityKey::open(directory.path()).unwrap().token(thread(), CALL, 1_000);
        for key in keys {
            assert_eq!(key.unwrap().verify(&token, 0), Ok((thread(), CALL)));
        }
    }

    #[test]
    fn the_key_is_made_once_and_is_its_owners() {
        let directory = tempfile::tempdir().unwrap();
        let token = CapabilityKey::open(directory.path()).unwrap().token(thread(), CALL, 1_000);
        let path = directory.path().join("capability.key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(CapabilityKey::open(directory.path()).unwrap().verify(&token, 0).is_ok());
        fs::write(&path, b"short").unwrap();
        assert!(CapabilityKey::open(directory.path()).unwrap_err().to_string().contains("capability.key"));
    }
}
