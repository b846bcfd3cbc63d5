//! The keys that clients and administrators show, from files: one a line, `#` begins a comment.
//!
//! What must hold: how long a comparison takes says nothing about a key but its length; a key is never logged.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hyper::header::{AUTHORIZATION, HeaderMap};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use super::routes::Access;
use crate::config::schema::Server;
use crate::error::{ApiError, Code};

/// Shortest key: what is shorter can be tried out.
const SHORTEST: usize = 16;

/// Who asks, as far as keys tell: a number for each key, so that clients do not cancel each other's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller(usize);

impl Caller {
    /// The roster's name for a request id that this caller chose.
    pub fn scoped(self, id: &str) -> String {
        // A zero cannot be in a header, so no id looks like another caller's.
        if self.0 == 0 { id.to_owned() } else { format!("{}\0{id}", self.0) }
    }
}

/// All keys.
#[derive(Default)]
pub struct Keys(RwLock<Lists>);

#[derive(Default)]
struct Lists {
    clients: Vec<String>,
    admins: Vec<String>,
}

impl Keys {
    /// The keys of the configuration's files.
    pub fn read(server: &Server) -> Result<Keys, String> {
        let list = |file: &Option<std::path::PathBuf>| file.as_deref().map_or(Ok(Vec::new()), read);
        let lists = Lists { clients: list(&server.api_keys)?, admins: list(&server.admin_keys)? };
        Ok(Keys(RwLock::new(lists)))
    }

    /// Puts keys that were read since in the place of these.
    pub fn replace(&self, keys: Keys) {
        *self.0.write() = keys.0.into_inner();
    }

    /// Whether a caller with these headers may use a route; `local`: it is on this machine.
    pub fn check(
        &self,
        access: Access,
        metrics_auth: bool,
        headers: &HeaderMap,
        local: bool,
    ) -> Result<Caller, ApiError> {
        let lists = self.0.read();
        let shown = shown(headers);
        let admin = place(&lists.admins, shown).map(|at| Caller(lists.clients.len() + at + 1));
        let client = place(&lists.clients, shown).map(|at| Caller(at + 1));
        match access {
            Access::Open => Ok(Caller::default()),
            Access::Metrics if !metrics_auth => Ok(Caller::default()),
            Access::Key | Access::Metrics if lists.clients.is_empty() => Ok(admin.unwrap_or_default()),
            Access::Key | Access::Metrics => client.or(admin).ok_or_else(|| refused(shown)),
            Access::Admin if lists.admins.is_empty() && local => Ok(Caller::default()),
            Access::Admin if lists.admins.is_empty() => Err(ApiError::new(
                Code::AdminOnly,
                "this route is for callers on the host's machine; give the host --admin-keys to use it from elsewhere",
            )),
            Access::Admin => admin.ok_or_else(|| match client {
                None => refused(shown),
                Some(_) => ApiError::new(
                    Code::AdminOnly,
                    "this route is not for clients' keys; show one of --admin-keys",
                ),
            }),
        }
    }
}

fn refused(shown: Option<&[u8]>) -> ApiError {
    let message = match shown {
        None => "a key is needed: send it as Authorization: Bearer KEY, or as x-api-key",
        Some(_) => "the key is not one of this host's",
    };
    ApiError::new(Code::InvalidApiKey, message)
}

/// The key that a request shows.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).map(|v| v.as_bytes()).and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|v| v.as_bytes().trim_ascii()))
}

/// Where the key is in the list. All are compared, whichever it is.
fn place(keys: &[String], shown: Option<&[u8]>) -> Option<usize> {
    let shown = shown?;
    let mut found = None;
    for (at, key) in keys.iter().enumerate() {
        if bool::from(key.as_bytes().ct_eq(shown)) {
            found = Some(at);
        }
    }
    found
}

fn read(path: &Path) -> Result<Vec<String>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| format!("keys {shown} cannot be read: {e}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let keys: Vec<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let bad = |key: &String| key.len() < SHORTEST || !key.bytes().all(|b| b.is_ascii_graphic());
    if let Some(at) = keys.iter().position(bad) {
        return Err(format!(
            "keys {shown}: key {} is shorter than {SHORTEST} characters or not printable; make one with: openssl rand -hex 24",
            at + 1
        ));
    }
    if keys.is_empty() {
        return Err(format!("keys {shown} has no key; write one a line"));
    }
    if path.metadata().is_ok_and(|meta| meta.mode() & 0o004 != 0) {
        tracing::warn!(file = %shown, "every user of this machine may read the keys; run chmod o-r on the file");
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn keys(clients: &[&str], admins: &[&str]) -> Keys {
        let owned = |list: &[&str]| list.iter().map(|k| (*k).to_owned()).collect();
        Keys(RwLock::new(Lists { clients: owned(clients), admins: owned(admins) }))
    }

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a header"));
        headers
    }

    fn code(keys: &Keys, access: Access, headers: &HeaderMap, local: bool) -> Result<usize, Code> {
        keys.check(access, false, headers, local).map(|caller| caller.0).map_err(|e| e.code)
    }

    #[test]
    fn each_access_asks_for_its_key() {
        let none = HeaderMap::new();
        let open = keys(&[], &[]);
        assert_eq!(code(&open, Access::Key, &none, false), Ok(0));
        assert_eq!(code(&open, Access::Admin, &none, true), Ok(0));
        assert_eq!(code(&open, Access::Admin, &none, false), Err(Code::AdminOnly));
        let closed = keys(&["client-key-one-1", "client-key-two-2"], &["admin-key-one-11"]);
        for access in [Access::Key, Access::Admin] {
            assert_eq!(code(&closed, access, &none, true), Err(Code::InvalidApiKey));
        }
        assert_eq!(code(&closed, Access::Open, &none, false), Ok(0));
        assert_eq!(code(&closed, Access::Metrics, &none, false), Ok(0));
        let (client, admin) =
            (headers("authorization", "bearer client-key-two-2"), headers("x-api-key", "admin-key-one-11"));
        assert_eq!(code(&closed, Access::Key, &client, false), Ok(2));
        assert_eq!(code(&closed, Access::Admin, &client, true), Err(Code::AdminOnly));
        assert_eq!(code(&closed, Access::Key, &admin, false), Ok(3));
        assert_eq!(code(&closed, Access::Admin, &admin, false), Ok(3));
        let auth = |h: &HeaderMap| closed.check(Access::Metrics, true, h, false).is_ok();
        assert!(auth(&client) && !auth(&none));
        for wrong in
            ["Bearer client-key-one", "Bearer client-key-one-11", "Basic client-key-one-1", "bearer", ""]
        {
            let found = code(&closed, Access::Key, &headers("authorization", wrong), true);
            assert_eq!(found, Err(Code::InvalidApiKey), "{wrong:?}");
        }
    }

    #[test]
    fn a_callers_own_ids_are_apart_from_others() {
        assert_eq!(Caller(0).scoped("x"), "x");
        assert_ne!(Caller(1).scoped("x"), Caller(2).scoped("x"));
    }
}
