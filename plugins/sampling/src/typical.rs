//! Locally typical sampling: tokens stay whose surprise is nearest to the mean surprise.

use crate::draw::Member;

/// Leaves the members nearest to the entropy of all of them whose share is at least `share`, at least one; equally near ones
/// by weight, then by id. They keep the order of their ids.
pub(crate) fn typical(members: &mut Vec<Member>, share: f32) {
    members.retain(|m| m.weight > 0.0);
    let total: f64 = members.iter().map(|m| m.weight).sum();
    let surprise = |m: &Member| -(m.weight / total).ln();
    let entropy: f64 = members.iter().map(|m| m.weight / total * surprise(m)).sum();
    members.sort_by(|a, b| {
        let apart = |m: &Member| (surprise(m) - entropy).abs();
        apart(a).total_cmp(&apart(b)).then(b.logit.total_cmp(&a.logit)).then(a.token.cmp(&b.token))
    });
    let mut kept = 0.0;
    let enough = f64::from(share) * total;
    let stay = members.iter().position(|m| {
        kept += m.weight;
        kept >= enough
    });
    members.truncate(stay.map_or(members.len(), |at| at + 1));
    members.sort_unstable_by_key(|m| m.token);
}
