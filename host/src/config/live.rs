//! The configuration that holds now. Readers take it as a whole, so that what they read belongs together.

use std::sync::Arc;

use parking_lot::RwLock;

use super::Config;

/// The configuration that holds now.
pub struct Live(RwLock<Arc<Config>>);

impl Live {
    /// Begins with this one.
    pub fn new(config: Config) -> Live {
        Live(RwLock::new(Arc::new(config)))
    }

    /// The one that holds now. Taken once for what must agree; asked again for what comes later.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read())
    }

    /// Puts another one in its place.
    pub fn set(&self, config: Arc<Config>) {
        *self.0.write() = config;
    }
}
