//! Locally typical sampling: tokens stay whose surprise is nearest to the mean surprise.

use crate::draw::Member;

/// Leaves the members nearest to the entropy of all of them whose share is at least `share`, at least one; equally near ones
/// by weight, then by id. They keep the order of their ids.
pub(crate) fn typical(members: &mut Vec<Member>, share: f32) {
    members.retain(|m| m.weight > 0.0);
    let total: f64 = members.iter().map(|m| m.weight).sum();
    let mut entropy = 0.0;
    let mut apart = Vec::with_capacity(members.len());
    for (at, member) in members.iter().enumerate() {
        let surprise = -(member.weight / total).ln();
        entropy += member.weight / total * surprise;
        apart.push((surprise, at as u32));
    }
    for place in &mut apart {
        place.0 = (place.0 - entropy).abs();
    }
    // Members stand in the order of their ids, so that the place decides as the id would.
    let logit = |at: u32| members[at as usize].logit;
    apart.sort_unstable_by(|a, b| {
        a.0.total_cmp(&b.0).then_with(|| logit(b.1).total_cmp(&logit(a.1))).then(a.1.cmp(&b.1))
    });
    let enough = f64::from(share) * total;
    let mut kept = 0.0;
    let mut stay = Vec::new();
    for (_, at) in apart {
        let member = members[at as usize];
        kept += member.weight;
        stay.push(member);
        if kept >= enough {
            break;
        }
    }
    stay.sort_unstable_by_key(|m| m.token);
    *members = stay;
}
