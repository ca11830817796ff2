//! How threads are addressed from outside: by id, or by a name that people can remember.
//!
//! In: the text of an address. Out: a [`ThreadId`], and the name if it was one. Always: the same text is the same thread
//! everywhere and for ever; a text that reads as an id is never taken for a name.

use sha2::{Digest, Sha256};
use slackwater_core::id::ThreadId;

/// How long a name may be, in characters.
pub const NAME_LENGTH_MAX: usize = 64;

/// Part of every name's hash, so that the ids of named threads are not those that another program makes of the same names.
const PREFIX: &[u8] = b"slackwater thread name\0";

/// A thread as it was addressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Which thread.
    pub thread: ThreadId,
    /// The name by which it was addressed, if it was not its id.
    pub name: Option<String>,
}

/// A text that addresses no thread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a thread is addressed by its UUID, or by a name of 1 to {NAME_LENGTH_MAX} letters, digits or -._~ that does not only consist of dots"
)]
pub struct BadAddress;

/// The thread that a text addresses.
///
/// # Errors
/// When it is neither a UUID nor a name.
pub fn address(text: &str) -> Result<Address, BadAddress> {
    if let Ok(thread) = text.parse() {
        return Ok(Address { thread, name: None });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '~' | '-');
    // A path segment of one or two dots is resolved away by clients and proxies.
    if text.is_empty() || text.len() > NAME_LENGTH_MAX || !text.chars().all(allowed) || text.chars().all(|c| c == '.') {
        return Err(BadAddress);
    }
    Ok(Address { thread: named(text), name: Some(text.to_owned()) })
}

/// The id of the thread with a name: the first 16 bytes of a SHA-256, marked as a UUID of version 8 (RFC 9562,
/// section 5.8).
fn named(name: &str) -> ThreadId {
    let hash = Sha256::new().chain_update(PREFIX).chain_update(name).finalize();
    let mut bytes: [u8; 16] = hash[..16].try_into().expect("invariant: a SHA-256 has 32 bytes");
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    ThreadId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_the_same_thread_for_ever() {
        // Changing this changes which thread people reach by a name that they already use.
        let demo = address("demo").unwrap();
        assert_eq!(demo.thread.to_string(), "812c0a6d-7438-8772-b551-c7e779b9a354");
        assert_eq!(demo.name.as_deref(), Some("demo"));
    }

    #[test]
    fn what_addresses_nothing_is_refused() {
        for text in ["", ".", "..", "a b", "a/b", "ä", "a:b", &"x".repeat(65)] {
            assert_eq!(address(text), Err(BadAddress), "{text:?}");
        }
        assert!(address(&"x".repeat(64)).is_ok());
    }

    proptest! {
        #[test]
        fn an_id_is_never_a_name_and_a_name_never_another_thing(name in "[A-Za-z0-9._~-]{1,64}", bytes: [u8; 16]) {
            let id = ThreadId::from_bytes(bytes);
            prop_assert_eq!(address(&id.to_string()), Ok(Address { thread: id, name: None }));
            prop_assert_eq!(address(&id.to_string().to_uppercase()), Ok(Address { thread: id, name: None }));
            if let Ok(found) = address(&name) {
                prop_assert_eq!(found.name.as_deref(), Some(name.as_str()));
                let text = found.thread.to_string();
                prop_assert_eq!(text.as_bytes()[14], b'8', "version 8");
                prop_assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "variant of RFC 9562");
                // Its id addresses the same thread.
                prop_assert_eq!(address(&text).unwrap().thread, found.thread);
            }
        }

        #[test]
        fn different_names_are_different_threads(a in "[a-z.-]{1,64}", b in "[a-z.-]{1,64}") {
            if let (Ok(first), Ok(second)) = (address(&a), address(&b)) {
                prop_assert_eq!(a == b, first.thread == second.thread);
            }
        }
    }
}
