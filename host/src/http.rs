//! HTTP: connections, bodies, errors on the wire. Knows hyper; knows no route and no API.

mod bell;
pub mod body;
mod ended;
pub mod gzip;
pub mod read;
pub mod respond;
pub mod room;
pub mod server;
mod socket;
pub mod stream;
mod streams;
mod takeover;
pub mod tls;
mod upload;

pub use body::Body;
pub use server::{Connection, Service};
pub use upload::Upload;
