//! Position encodings of a configuration, in the forms that transformers 4 and 5 write.

use serde_json::Value;

use super::config::Config;
use crate::error::Error;
use crate::families::Choices;
use crate::model::{Rope, Scaling};

/// The rope of layers of a kind; files name kinds only where they differ.
pub(super) fn rope(c: &Config, kind: &str, dims: usize, choices: Choices) -> Result<Rope, Error> {
    let none = Value::Null;
    let own = c.rope_object(kind).or(c.json.get("rope_scaling")).unwrap_or(&none);
    let number = |key: &str| own.get(key).and_then(Value::as_f64).filter(|x| x.is_finite());
    let base = number("rope_theta").or(c.float("rope_theta")?).unwrap_or(10000.0);
    let need = |key: &str| number(key).ok_or_else(|| c.missing(&format!("rope_scaling.{key}")));
    let trained = number("original_max_position_embeddings")
        .or(c.float("original_max_position_embeddings")?)
        .or(c.float("max_position_embeddings")?);
    let context = || trained.ok_or_else(|| c.missing("rope_scaling.original_max_position_embeddings"));
    let name = own.get("rope_type").or(own.get("type")).and_then(Value::as_str);
    let mut rope = Rope::plain(dims, base);
    rope.scaling = match name.unwrap_or("default") {
        "default" => Scaling::None,
        "linear" => Scaling::Linear { factor: need("factor")? },
        "llama3" => Scaling::Llama3 {
            factor: need("factor")?,
            low: need("low_freq_factor")?,
            high: need("high_freq_factor")?,
            context: context()?,
        },
        "yarn" if number("mscale").is_some() || number("mscale_all_dim").is_some() => {
            return Err(Error::feature(c.path, "rope_scaling.mscale"));
        }
        "yarn" => Scaling::Yarn {
            factor: need("factor")?,
            fast: number("beta_fast").unwrap_or(32.0),
            slow: number("beta_slow").unwrap_or(1.0),
            context: context()?,
            truncate: own.get("truncate").and_then(Value::as_bool).unwrap_or(true),
            magnitude: number("attention_factor"),
        },
        "longrope" | "su" => {
            let trained = context()?;
            let most = c.float("max_position_embeddings")?.unwrap_or(trained);
            let stretch = number("factor").unwrap_or(most / trained);
            let grown = if stretch > 1.0 { (1.0 + stretch.ln() / trained.ln()).sqrt() } else { 1.0 };
            rope.magnitude = number("attention_factor").unwrap_or(grown);
            let long = choices.context.is_some_and(|asked| asked as f64 > trained);
            Scaling::Factors(factors(c, own, if long { "long_factor" } else { "short_factor" }, dims)?)
        }
        other => {
            let known = "known are default, linear, llama3, yarn and longrope";
            return Err(Error::unsupported(c.path, format!("rope scaling {other}"), known));
        }
    };
    Ok(rope)
}

fn factors(c: &Config, own: &Value, key: &str, dims: usize) -> Result<Vec<f32>, Error> {
    let list =
        own.get(key).and_then(Value::as_array).ok_or_else(|| c.missing(&format!("rope_scaling.{key}")))?;
    let factors: Option<Vec<f32>> = list.iter().map(|x| x.as_f64().map(|x| x as f32)).collect();
    match factors {
        Some(factors) if factors.len() == dims / 2 && factors.iter().all(|x| x.is_finite() && *x > 0.0) => {
            Ok(factors)
        }
        _ => Err(Error::damaged(
            c.path,
            format!(
                "rope_scaling.{key} is no list of {} positive numbers; take the config.json of the original model",
                dims / 2
            ),
        )),
    }
}
