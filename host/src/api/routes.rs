//! Every route: method, path, what answers it. The path's template is also its metric label.

use hyper::Method;

use crate::error::{ApiError, Code};

/// What answers a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// Chat completions.
    Chat,
    /// Text completions.
    Completions,
    /// The list of models.
    Models,
    /// One model.
    Model,
    /// Token ids of a text.
    Tokenize,
    /// The text of token ids.
    Detokenize,
    /// Cancelling a generation.
    Cancel,
    /// Liveness.
    Live,
    /// Readiness.
    Ready,
    /// The metrics.
    Metrics,
    /// Models as the fleet sees them.
    AdminList,
    /// Loading a model.
    AdminLoad,
    /// Letting a model go.
    AdminUnload,
}

/// Who may use a route. There is no default: a row says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Open,
    /// Who shows a key, where the host has keys.
    Key,
    /// As [`Access::Key`] where the configuration asks for it, else everybody.
    Metrics,
    /// Who shows an administrator's key; without such keys, who is on this machine.
    Admin,
}

/// One route.
#[derive(Debug)]
pub struct Route {
    /// GET stands for HEAD too.
    pub method: Method,
    /// Path; a last part that begins with a colon stands for anything, one with a star for anything with slashes.
    pub path: &'static str,
    /// What answers it.
    pub handler: Handler,
    /// Who may use it.
    pub access: Access,
}

const fn get(path: &'static str, handler: Handler, access: Access) -> Route {
    Route { method: Method::GET, path, handler, access }
}

const fn post(path: &'static str, handler: Handler, access: Access) -> Route {
    Route { method: Method::POST, path, handler, access }
}

const fn delete(path: &'static str, handler: Handler, access: Access) -> Route {
    Route { method: Method::DELETE, path, handler, access }
}

/// All routes.
pub static ROUTES: &[Route] = &[
    post("/v1/chat/completions", Handler::Chat, Access::Key),
    post("/v1/completions", Handler::Completions, Access::Key),
    get("/v1/models", Handler::Models, Access::Key),
    get("/v1/models/*model", Handler::Model, Access::Key),
    post("/v1/cancel/:task_id", Handler::Cancel, Access::Key),
    post("/tokenize", Handler::Tokenize, Access::Key),
    post("/v1/tokenize", Handler::Tokenize, Access::Key),
    post("/detokenize", Handler::Detokenize, Access::Key),
    post("/v1/detokenize", Handler::Detokenize, Access::Key),
    get("/livez", Handler::Live, Access::Open),
    get("/readyz", Handler::Ready, Access::Open),
    get("/health", Handler::Ready, Access::Open),
    get("/health/live", Handler::Live, Access::Open),
    get("/health/ready", Handler::Ready, Access::Open),
    get("/metrics", Handler::Metrics, Access::Metrics),
    get("/admin/v1/models", Handler::AdminList, Access::Admin),
    post("/admin/v1/models", Handler::AdminLoad, Access::Admin),
    delete("/admin/v1/models/*name", Handler::AdminUnload, Access::Admin),
];

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A route, and the open part of its path.
    Route(&'static Route, String),
    /// The path is there, the method is not.
    WrongMethod(&'static Route),
    /// Nothing.
    Nothing,
}

impl Found {
    /// The metric label: a template, never what the client wrote.
    pub fn label(&self) -> &'static str {
        match self {
            Found::Route(route, _) | Found::WrongMethod(route) => route.path,
            Found::Nothing => "unmatched",
        }
    }
}

impl Route {
    /// The `Allow` header of its path.
    pub fn allow(&self) -> String {
        let methods = ROUTES.iter().filter(|route| route.path == self.path).map(|route| match route.method {
            Method::GET => "GET, HEAD",
            ref other => other.as_str(),
        });
        methods.chain(["OPTIONS"]).collect::<Vec<_>>().join(", ")
    }

    /// What a client is told that used another method.
    pub fn wrong_method(&self, method: &Method) -> ApiError {
        let method: String = method.as_str().chars().take(20).collect();
        ApiError::new(Code::MethodNotAllowed, format!("{} takes {}, not {method}", self.path, self.allow()))
    }

    fn tail_of(&self, path: &str) -> Option<String> {
        let (stem, name) = self.path.split_at_checked(self.path.rfind('/')? + 1)?;
        let open = match name.as_bytes().first() {
            Some(b':') => path.strip_prefix(stem).filter(|tail| !tail.contains('/')),
            Some(b'*') => path.strip_prefix(stem),
            _ => return (path == self.path).then(String::new),
        };
        open.filter(|tail| !tail.is_empty()).map(str::to_owned)
    }
}

/// The route of a path.
pub fn find(method: &Method, path: &str) -> Found {
    let mut wrong = None;
    for route in ROUTES {
        let Some(tail) = route.tail_of(path) else { continue };
        if *method == route.method || (*method == Method::HEAD && route.method == Method::GET) {
            return Found::Route(route, tail);
        }
        wrong = Some(route);
    }
    wrong.map_or(Found::Nothing, Found::WrongMethod)
}

/// What a client is told whose path leads nowhere.
pub fn unknown(path: &str) -> ApiError {
    let path: String = path.chars().take(200).collect();
    ApiError::new(Code::UnknownRoute, format!("there is no {path:?}; the API is under /v1, see the README"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_templates_whatever_the_client_wrote() {
        let label = |method: Method, path: &str| find(&method, path).label();
        assert_eq!(label(Method::POST, "/v1/cancel/chatcmpl-1"), "/v1/cancel/:task_id");
        assert_eq!(label(Method::POST, "/v1/cancel/a/b"), "unmatched");
        assert_eq!(label(Method::GET, "/v1/chat/completions"), "/v1/chat/completions");
        assert_eq!(label(Method::HEAD, "/livez"), "/livez");
        assert_eq!(label(Method::GET, "/etc/passwd"), "unmatched");
        assert_eq!(label(Method::GET, "/v1/models/org/name"), "/v1/models/*model");
        assert_eq!(label(Method::GET, "/v1/models/"), "unmatched");
    }

    #[test]
    fn a_known_path_with_another_method_is_told_apart() {
        assert!(matches!(find(&Method::GET, "/v1/completions"), Found::WrongMethod(_)));
        assert!(matches!(find(&Method::HEAD, "/v1/completions"), Found::WrongMethod(_)));
        let Found::WrongMethod(route) = find(&Method::PUT, "/admin/v1/models") else { panic!("no PUT") };
        assert_eq!(route.allow(), "GET, HEAD, POST, OPTIONS");
    }
}
