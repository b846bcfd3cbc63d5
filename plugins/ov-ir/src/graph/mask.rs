//! Which positions a query sees, as what is added to its scores: 0 or the most negative f16.
//!
//! A position is seen if it is no later than the query's, if the caller's `attention_mask` does not hide it, and if it
//! lies in the window where there is one. The masks are shared by all layers.
//!
//! The one with a window has the very form (four conjunctions, a broadcast, a selection, a slice) by which the pass to
//! paged attention knows a window: that pass drops all other masks, and would attend to everything.

use std::collections::HashMap;
use std::io;

use crate::ir::{ANY, Kind, Net, Value};

/// What masks are made of; each is drawn when the first layer asks for it.
pub(super) struct Masks {
    /// `[batch, 1, 1, all]`: not hidden.
    shown: Value,
    /// `[all]`: 0, 1, 2, ...
    keys: Value,
    /// `[batch, 1, new, 1]`.
    queries: Value,
    /// `[batch, 1, new, all]`: no later than the query.
    causal: Value,
    /// `[1]`: positions so far and new.
    all: Value,
    drawn: HashMap<Option<usize>, Value>,
}

impl Masks {
    pub(super) fn new<W: io::Write>(
        net: &mut Net<W>,
        attention: &Value,
        positions: &Value,
    ) -> io::Result<Self> {
        let all = net.length("mask/all", attention, 1)?;
        let end = net.scalar("mask/end", &all)?;
        let keys = net.range("mask/keys", &end)?;
        let queries = net.unsqueeze("mask/queries", positions, &[1, 3])?;
        let causal = net.less_equal("mask/causal", &keys, &queries);
        let zero = net.i64s("mask/zero", &[0])?;
        let shown = net.not_equal("mask/shown", attention, &zero);
        let shown = net.unsqueeze("mask/shown4", &shown, &[1, 2])?;
        Ok(Self { shown, keys, queries, causal, all, drawn: HashMap::new() })
    }

    /// The mask of layers that see `window` positions, or all.
    pub(super) fn get<W: io::Write>(&mut self, net: &mut Net<W>, window: Option<usize>) -> io::Result<Value> {
        if let Some(known) = self.drawn.get(&window) {
            return Ok(known.clone());
        }
        let mask = match window {
            None => {
                let seen = net.bitwise_and("mask/full/seen", &self.causal, &self.shown);
                choose(net, "mask/full", &seen)?
            }
            Some(window) => self.windowed(net, window)?,
        };
        self.drawn.insert(window, mask.clone());
        Ok(mask)
    }

    fn windowed<W: io::Write>(&self, net: &mut Net<W>, window: usize) -> io::Result<Value> {
        let name = format!("mask/window{window}");
        let back = net.i64(&format!("{name}/back"), -(window as i64))?;
        let before = net.add(&format!("{name}/before"), &self.queries, &back);
        let inside = net.greater(&format!("{name}/inside"), &self.keys, &before);
        let yes = net.constant(&format!("{name}/yes"), Kind::Bool, &[], &[1])?;
        let seen = net.bitwise_and(&format!("{name}/and0"), &yes, &inside);
        let seen = net.bitwise_and(&format!("{name}/and1"), &seen, &self.causal);
        let seen = net.bitwise_and(&format!("{name}/and2"), &yes, &seen);
        let seen = net.bitwise_and(&format!("{name}/and3"), &seen, &self.shown);
        let ones = net.i64s(&format!("{name}/ones"), &[1, 1, 1, 1])?;
        let dims = seen.dims.clone();
        let seen = net.broadcast(&format!("{name}/seen"), &seen, &ones, "bidirectional", dims);
        let whole = choose(net, &format!("{name}/whole"), &seen)?;
        net.slice_until(&name, &whole, 3, &self.all)
    }
}

fn choose<W: io::Write>(net: &mut Net<W>, name: &str, seen: &Value) -> io::Result<Value> {
    debug_assert_eq!(seen.dims, [ANY, 1, ANY, ANY]);
    let open = net.f32(&format!("{name}/open"), 0.0)?;
    let shut = net.f32(&format!("{name}/shut"), -65504.0)?;
    Ok(net.select(name, seen, &open, &shut))
}
