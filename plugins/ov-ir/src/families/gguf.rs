//! Families of GGUF files, by `general.architecture`.
//!
//! Keys as in the GGUF specification; what they mean for a family as in llama.cpp's model loader, which defines the
//! format: windows and rope of Gemma by layer number, the scale of the 27B models, gains with one already added.

use std::path::Path;

use cascadia_gguf::{Array, Gguf, Value};

use super::assemble::assemble;
use super::names::GGUF;
use super::{Choices, Facts, Layer, MAX_LAYERS, MAX_SIZE};
use crate::error::Error;
use crate::float;
use crate::model::{Activation, Model, Rope, Scaling};
use crate::source::Source;

/// Describes the model of a file.
pub(crate) fn from_gguf(header: &Gguf, source: &Source, choices: Choices) -> Result<Model, Error> {
    let path = source.path();
    let arch = header.str("general.architecture").map_err(damaged(path))?;
    let arch = arch.ok_or_else(|| damaged(path)(cascadia_gguf::Error::missing("general.architecture")))?;
    let keys = Keys { header, arch, path };
    dense(&keys)?;
    let facts = match arch {
        "llama" => keys.base(source, choices, Style { interleaved: true, ..Style::PLAIN })?,
        "qwen2" | "qwen3" => keys.base(source, choices, Style::PLAIN)?,
        "smollm3" => smollm3(&keys, source, choices)?,
        "phi3" => phi3(&keys, source, choices)?,
        "gemma" => gemma(&keys, source, choices)?,
        "gemma2" => gemma2(&keys, source, choices)?,
        "gemma3" => gemma3(&keys, source, choices)?,
        other => {
            let known = "known are llama, qwen2, qwen3, smollm3, gemma, gemma2, gemma3 and phi3";
            return Err(Error::unsupported(path, format!("the gguf architecture {other}"), known));
        }
    };
    assemble(facts, &GGUF, source)
}

/// Refuses mixtures of experts, whatever their family.
fn dense(keys: &Keys) -> Result<(), Error> {
    let experts = keys.number("expert_count", u64::MAX)?.unwrap_or(0);
    if experts == 0 && !keys.arch.ends_with("moe") {
        return Ok(());
    }
    Err(Error::unsupported(
        keys.path,
        format!("a mixture of experts ({} with {} {experts})", keys.arch, keys.key("expert_count")),
        super::DENSE,
    ))
}

/// What distinguishes families beside their numbers.
struct Style {
    interleaved: bool,
    activation: Activation,
    sandwich: bool,
}

impl Style {
    const PLAIN: Self = Self { interleaved: false, activation: Activation::Silu, sandwich: false };
}

/// Every fourth layer has no position encoding; the format has no key for it.
fn smollm3(keys: &Keys, source: &Source, choices: Choices) -> Result<Facts, Error> {
    let mut facts = keys.base(source, choices, Style { interleaved: true, ..Style::PLAIN })?;
    for layer in facts.layers.iter_mut().skip(3).step_by(4) {
        layer.rope = None;
    }
    Ok(facts)
}

fn phi3(keys: &Keys, source: &Source, choices: Choices) -> Result<Facts, Error> {
    let mut facts = keys.base(source, choices, Style::PLAIN)?;
    let window = keys.optional("attention.sliding_window")?.filter(|window| *window > 0);
    for layer in &mut facts.layers {
        layer.window = window;
    }
    Ok(facts)
}

fn gemma(keys: &Keys, source: &Source, choices: Choices) -> Result<Facts, Error> {
    let mut facts = keys.base(source, choices, Style { activation: Activation::GeluTanh, ..Style::PLAIN })?;
    facts.embedding_scale = Some((facts.hidden as f32).sqrt());
    Ok(facts)
}

fn gemma2(keys: &Keys, source: &Source, choices: Choices) -> Result<Facts, Error> {
    let style = Style { activation: Activation::GeluTanh, sandwich: true, ..Style::PLAIN };
    let mut facts = keys.base(source, choices, style)?;
    facts.embedding_scale = Some((facts.hidden as f32).sqrt());
    facts.attention_cap = Some(keys.f32("attn_logit_softcapping")?.unwrap_or(50.0));
    facts.logit_cap = Some(keys.f32("final_logit_softcapping")?.unwrap_or(30.0));
    // The 27B model, the one with 46 layers, scales by the width of a head had the heads filled the stream.
    if facts.layers.len() == 46 {
        facts.attention_scale = Some(1.0 / (facts.hidden as f32 / facts.heads as f32).sqrt());
    }
    let window = keys.optional("attention.sliding_window")?.unwrap_or(4096);
    for (number, layer) in facts.layers.iter_mut().enumerate() {
        layer.window = number.is_multiple_of(2).then_some(window);
    }
    Ok(facts)
}

fn gemma3(keys: &Keys, source: &Source, choices: Choices) -> Result<Facts, Error> {
    let style = Style { activation: Activation::GeluTanh, sandwich: true, ..Style::PLAIN };
    let mut facts = keys.base(source, choices, style)?;
    facts.embedding_scale = Some((facts.hidden as f32).sqrt());
    facts.logit_cap = keys.f32("final_logit_softcapping")?;
    // As Gemma 2's: the 27B model has 62 layers.
    if facts.layers.len() == 62 {
        facts.attention_scale = Some(1.0 / (facts.hidden as f32 / facts.heads as f32).sqrt());
    }
    let window = keys.size("attention.sliding_window")?;
    let local =
        Rope::plain(facts.ropes[0].dims, f64::from(keys.f32("rope.freq_base_swa")?.unwrap_or(10000.0)));
    facts.ropes.push(local);
    let local = keys.window_pattern(facts.layers.len())?;
    for (number, layer) in facts.layers.iter_mut().enumerate() {
        let is_local = local.as_ref().map_or(number % 6 < 5, |pattern| pattern[number]);
        if is_local {
            *layer = Layer { rope: Some(1), window: Some(window) };
        }
    }
    Ok(facts)
}

fn damaged(path: &Path) -> impl Fn(cascadia_gguf::Error) -> Error {
    move |source| Error::Gguf { path: path.to_owned(), source }
}

/// The keys of one architecture.
struct Keys<'a> {
    header: &'a Gguf,
    arch: &'a str,
    path: &'a Path,
}

impl Keys<'_> {
    /// What all families have in common.
    fn base(&self, source: &Source, choices: Choices, style: Style) -> Result<Facts, Error> {
        let hidden = self.size("embedding_length")?;
        let heads = self.size("attention.head_count")?;
        let kv_heads = self.optional("attention.head_count_kv")?.unwrap_or(heads);
        let layers = self.number("block_count", MAX_LAYERS)?.unwrap_or(0);
        if layers == 0 {
            return Err(Error::damaged(
                self.path,
                format!("{} is 0 or missing; convert the model again", self.key("block_count")),
            ));
        }
        let head_dim = self.optional("attention.key_length")?.unwrap_or(hidden / heads);
        let value_dim = self.optional("attention.value_length")?.unwrap_or(hidden / heads);
        if head_dim != value_dim {
            let what = format!("keys of width {head_dim} with values of width {value_dim}");
            return Err(Error::feature(self.path, what));
        }
        if kv_heads == 0 || heads % kv_heads != 0 || head_dim == 0 || head_dim % 2 != 0 {
            let problem = format!(
                "has {heads} heads of {head_dim} over {kv_heads} key heads, which cannot be; convert the model again"
            );
            return Err(Error::damaged(self.path, problem));
        }
        let epsilon = "attention.layer_norm_rms_epsilon";
        let epsilon = self.f32(epsilon)?.ok_or_else(|| self.missing(epsilon))?;
        let rope = self.rope(source, head_dim, choices)?;
        Ok(Facts {
            family: self.arch.to_owned(),
            hidden,
            heads,
            kv_heads,
            head_dim,
            epsilon,
            context: self.number("context_length", u64::MAX)?,
            activation: style.activation,
            interleaved: style.interleaved,
            plus_one: false,
            sandwich: style.sandwich,
            tied: false,
            embedding_scale: None,
            attention_scale: None,
            attention_cap: None,
            logit_cap: None,
            ropes: vec![rope],
            layers: vec![Layer { rope: Some(0), window: None }; layers as usize],
        })
    }

    fn rope(&self, source: &Source, head_dim: usize, choices: Choices) -> Result<Rope, Error> {
        let dims = self.optional("rope.dimension_count")?.unwrap_or(head_dim);
        if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
            let problem = format!(
                "rotates {dims} elements of heads of {head_dim}, which cannot be; convert the model again"
            );
            return Err(Error::damaged(self.path, problem));
        }
        let base = f64::from(self.f32("rope.freq_base")?.unwrap_or(10000.0));
        let kind = self.header.str(&self.key("rope.scaling.type")).map_err(damaged(self.path))?;
        let factor = self.f32("rope.scaling.factor")?.or(self.f32("rope.scale_linear")?).map(f64::from);
        let own = f64::from(self.f32("rope.scaling.attn_factor")?.unwrap_or(1.0));
        let short = source.has("rope_factors_short.weight") || source.has("rope_factors_long.weight");
        let scaling = match (kind, factor) {
            (Some("longrope"), _) => self.long_rope(source, dims, choices)?,
            _ if short => self.long_rope(source, dims, choices)?,
            (Some("yarn"), Some(factor)) => self.yarn(factor)?,
            (Some("linear"), Some(factor)) | (None, Some(factor)) if factor > 0.0 => {
                Scaling::Linear { factor }
            }
            (None | Some("none" | "linear"), _) => self.frequencies(source, dims)?,
            (Some(other), _) => {
                let factor = factor.map_or("no factor".to_owned(), |factor| format!("factor {factor}"));
                return Err(Error::unsupported(
                    self.path,
                    format!("rope scaling {other} with {factor} ({})", self.key("rope.scaling.type")),
                    "known are none, linear, yarn and longrope, with a positive factor",
                ));
            }
        };
        Ok(Rope { dims, base, scaling, magnitude: own })
    }

    fn yarn(&self, factor: f64) -> Result<Scaling, Error> {
        if self.f32("rope.scaling.yarn_log_multiplier")?.is_some_and(|x| x != 0.0) {
            return Err(Error::feature(self.path, self.key("rope.scaling.yarn_log_multiplier")));
        }
        let context = self.number("rope.scaling.original_context_length", u64::MAX)?;
        let context = context.or(self.number("context_length", u64::MAX)?);
        let context = context.ok_or_else(|| self.missing("rope.scaling.original_context_length"))? as f64;
        let fast = self.f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0).into();
        let slow = self.f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0).into();
        Ok(Scaling::Yarn { factor, fast, slow, context, truncate: true, magnitude: None })
    }

    fn long_rope(&self, source: &Source, dims: usize, choices: Choices) -> Result<Scaling, Error> {
        let trained = self.number("rope.scaling.original_context_length", u64::MAX)?;
        let long = matches!((choices.context, trained), (Some(asked), Some(trained)) if asked > trained);
        let name = if long { "rope_factors_long.weight" } else { "rope_factors_short.weight" };
        self.factors(source, name, dims)
    }

    fn frequencies(&self, source: &Source, dims: usize) -> Result<Scaling, Error> {
        let name = "rope_freqs.weight";
        if source.has(name) { self.factors(source, name, dims) } else { Ok(Scaling::None) }
    }

    fn factors(&self, source: &Source, name: &str, dims: usize) -> Result<Scaling, Error> {
        let info = source.get(name)?;
        if info.shape != [dims / 2] || info.format != crate::source::Format::F32 {
            let problem = format!(
                "has the shape {:?} of {:?}, [{}] of F32 is needed",
                info.shape,
                info.format,
                dims / 2
            );
            return Err(Error::tensor(self.path, name, problem));
        }
        let factors: Vec<f32> = float::floats(&source.read(name, 0..1)?).collect();
        if factors.iter().any(|factor| !factor.is_finite() || *factor <= 0.0) {
            return Err(Error::tensor(self.path, name, "holds a factor that is not positive"));
        }
        Ok(Scaling::Factors(factors))
    }

    /// Which layers are local, where the file says so: a period, or a flag per layer.
    fn window_pattern(&self, layers: usize) -> Result<Option<Vec<bool>>, Error> {
        let key = self.key("attention.sliding_window_pattern");
        let wrong = || {
            Error::damaged(
                self.path,
                format!("{key} is neither a period nor {layers} flags; convert the model again"),
            )
        };
        match self.header.get(&key) {
            None => Ok(None),
            Some(Value::Array(Array::Bool(flags))) if flags.len() == layers => Ok(Some(flags.clone())),
            Some(value) => {
                let period =
                    value.as_u64().filter(|n| *n > 0 && *n <= MAX_LAYERS).ok_or_else(wrong)? as usize;
                Ok(Some((0..layers).map(|layer| layer % period < period - 1).collect()))
            }
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.arch)
    }

    fn missing(&self, name: &str) -> Error {
        damaged(self.path)(cascadia_gguf::Error::missing(&self.key(name)))
    }

    fn number(&self, name: &str, limit: u64) -> Result<Option<u64>, Error> {
        let value = self.header.u64(&self.key(name)).map_err(damaged(self.path))?;
        match value {
            Some(found) if found > limit => {
                let problem =
                    format!("{} is {found}, the limit is {limit}; convert the model again", self.key(name));
                Err(Error::damaged(self.path, problem))
            }
            other => Ok(other),
        }
    }

    fn optional(&self, name: &str) -> Result<Option<usize>, Error> {
        Ok(self.number(name, MAX_SIZE)?.map(|value| value as usize))
    }

    /// A size that must be there and positive.
    fn size(&self, name: &str) -> Result<usize, Error> {
        self.optional(name)?.filter(|value| *value > 0).ok_or_else(|| self.missing(name))
    }

    fn f32(&self, name: &str) -> Result<Option<f32>, Error> {
        let value = self.header.f32(&self.key(name)).map_err(damaged(self.path))?;
        match value {
            Some(x) if !x.is_finite() => Err(Error::damaged(
                self.path,
                format!("{} is {x}, which is no finite number; convert the model again", self.key(name)),
            )),
            other => Ok(other),
        }
    }
}
