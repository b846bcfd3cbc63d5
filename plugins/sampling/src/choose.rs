//! The choice from an adjusted row: the best token, or the one that a random number falls on among those that the filters leave.

use crate::draw::{self, Member, Scale};
use crate::order::{self, Edge};
use crate::row::{self, Peak};
use crate::scratch::{Error, Scratch};
use crate::settings::Settings;
use crate::{nucleus, top, typical};

/// Up to so many candidates are listed with exact weights; more are drawn from the row by its pieces.
const LISTED: usize = 1024;

/// The token at `position` of the answer. `peak` is that of `row`.
pub(crate) fn choose(
    row: &[f32],
    peak: Peak,
    settings: &Settings,
    position: usize,
    scratch: &mut Scratch,
) -> Result<u32, Error> {
    if settings.greedy() {
        return best(row, peak, scratch);
    }
    let max = peak.max;
    let u = draw::random(settings.seed, position);
    if peak.is_infinite() {
        collect(row, Edge::from(max), usize::MAX, |_| 1.0, scratch);
        return draw::of_members(&scratch.members, u);
    }
    let scale = Scale { max, temperature: settings.temperature };
    let least = (settings.min_p > 0.0).then(|| Edge::from(scale.logit(f64::from(settings.min_p).ln())));
    let k = settings.top_k as usize;
    let whole = settings.typical_p < 1.0;
    if (1..row.len()).contains(&k) {
        let edge = top::edge(scratch.passes, row, k, &mut scratch.keys);
        collect(row, edge, usize::MAX, |x| scale.weight(x), scratch);
        if settings.top_p < 1.0 {
            keep_share(scratch, settings.top_p);
        }
        if let Some(least) = least {
            scratch.members.retain(|m| least.holds(m.logit, m.token));
        }
    } else {
        let share = (settings.top_p < 1.0)
            .then(|| nucleus::edge(scratch.passes, row, scale, settings.top_p, &mut scratch.keys));
        let edge = match (share, least) {
            (Some(a), Some(b)) => Some(a.tighter(b)),
            (a, b) => a.or(b),
        };
        let limit = if whole { usize::MAX } else { LISTED };
        let from = edge.unwrap_or(Edge::from(f32::NEG_INFINITY));
        let listed = (whole || edge.is_some()) && collect(row, from, limit, |x| scale.weight(x), scratch);
        if !listed {
            return draw::of_row(scratch.passes, row, scale, edge, u, &mut scratch.pieces);
        }
    }
    if whole {
        typical::typical(&mut scratch.members, settings.typical_p);
    }
    draw::of_members(&scratch.members, u)
}

/// The first token that has the largest value.
fn best(row: &[f32], peak: Peak, scratch: &Scratch) -> Result<u32, Error> {
    let mut found = None;
    row::each_in(scratch.passes, &row[peak.from..], peak.max, None, |token, _| {
        found = Some(peak.from as u32 + token);
        false
    });
    found.ok_or(Error::NothingAllowed)
}

/// Makes `scratch.members` of what stays; false where that are more than `limit`.
fn collect(
    row: &[f32],
    edge: Edge,
    limit: usize,
    weight: impl Fn(f32) -> f64,
    scratch: &mut Scratch,
) -> bool {
    let members = &mut scratch.members;
    members.clear();
    row::each_in(scratch.passes, row, edge.value, None, |token, logit| {
        if edge.holds(logit, token) {
            members.push(Member { token, logit, weight: weight(logit) });
        }
        members.len() <= limit
    })
}

/// Leaves the likeliest members that have at least `share` of all of them.
fn keep_share(scratch: &mut Scratch, share: f32) {
    let Scratch { members, keys, .. } = scratch;
    keys.clear();
    keys.extend(members.iter().enumerate().map(|(at, m)| order::key(m.logit, at as u32)));
    keys.sort_unstable();
    let needed = f64::from(share) * members.iter().map(|m| m.weight).sum::<f64>();
    let mut kept = 0.0;
    let mut last = None;
    for &key in keys.iter() {
        let member = members[order::of(key).1 as usize];
        last = Some(Edge { value: member.logit, token: member.token });
        kept += member.weight;
        if kept >= needed {
            break;
        }
    }
    if let Some(edge) = last {
        members.retain(|m| edge.holds(m.logit, m.token));
    }
}
