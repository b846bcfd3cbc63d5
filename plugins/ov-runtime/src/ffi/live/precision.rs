//! How far the profiles are from f32: the distributions over the next token, along one text, computed token by token, as in
//! decoding, and in one piece, as a prompt is.
//!
//! `cargo test --release -p cascadia-plugin-ov-runtime profiles -- --ignored --nocapture` prints the figures of the README.

use cascadia_ov_base::profile::Profile;

use super::*;

/// Tokens that are generated in f32, and then scored.
const TEXT: usize = if cfg!(debug_assertions) { 20 } else { 200 };

fn model(profile: Profile) -> Model {
    let network = compiled(profile.rounds());
    let properties = profile.chosen("CPU", network.parent().unwrap()).into_iter();
    let properties: Vec<_> = properties.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let mut model = Model::open(&shim(), &network, "CPU", &properties).unwrap();
    model.allocate(16).unwrap();
    model
}

#[test]
#[ignore = "needs cargo xtask build and the model"]
fn profiles_keep_to_the_distributions_of_f32_as_the_documents_say() {
    let mut exact = model(Profile::Exact);
    let mut text = Seq { tokens: FRANCE.into(), past: 0, first: 0 };
    while text.tokens.len() < FRANCE.len() + TEXT {
        step(&mut exact, &mut [&mut text], true);
    }
    let from = FRANCE.len();
    let reference = logits(&mut exact, &text.tokens, 0, from, 1);
    drop(exact);
    // The largest mean that is accepted: some three to five times what was measured, on processors of both kinds.
    for (profile, most) in [(Profile::Exact, 1e-9), (Profile::Default, 0.004), (Profile::Fast, 0.01)] {
        let mut model = model(profile);
        for (how, rows) in [("token by token", 1), ("in one piece", usize::MAX / 2)] {
            let found = logits(&mut model, &text.tokens, 0, from, rows);
            let each: Vec<f64> = reference.iter().zip(&found).map(|(p, q)| divergence(p, q)).collect();
            let mean = each.iter().sum::<f64>() / each.len() as f64;
            let largest = each.iter().copied().fold(0.0, f64::max);
            let same = reference.iter().zip(&found).filter(|(p, q)| best(p) == best(q)).count();
            println!(
                "{profile:?}, {how}: mean KL {mean:.2e}, largest {largest:.2e}, same best token {same} of {}, cache {}",
                each.len(),
                model.cache_type()
            );
            assert!(mean <= most, "{profile:?}, {how}: {mean}");
        }
    }
}
