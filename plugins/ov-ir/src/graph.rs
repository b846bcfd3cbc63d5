//! Draws a [`Model`], or some of its layers, as an OpenVINO network.
//!
//! Operations are those that OpenVINO's CPU plugin fuses (compressed matrices, RMS, RoPE, attention with its cache) and
//! that its pass to paged attention recognizes. Inputs are `attention_mask`, `position_ids`, `beam_idx` and `input_ids`,
//! or `inputs_embeds` where earlier layers run elsewhere; the output is `logits` or `hidden_out`. Keys and values are
//! kept in variables.
//!
//! What must hold: what is drawn computes what the [`Model`] says, in f32, whatever the batch and the past.

mod attention;
mod mask;
mod position;
mod weights;

use std::io;
use std::ops::Range;

use crate::error::Error;
use crate::ir::{ANY, Kind, Net, Value};
use crate::model::{Activation, Block, Mlp, Model, Norm};
use crate::source::Source;

use weights::Weights;
pub(crate) use weights::{Plain, Request, Tally};

use mask::Masks;
use position::Angles;

/// What layers are drawn with.
struct Draw<'a, W> {
    net: Net<W>,
    weights: Weights<'a>,
    model: &'a Model,
    /// The sequences of the batch, as a list of one.
    batch: Value,
    beam: Value,
    masks: Masks,
    angles: Angles,
}

/// A network, its constants and what became of the weights.
pub(crate) struct Drawn<W> {
    pub(crate) text: String,
    pub(crate) data: crate::ir::Written<W>,
    pub(crate) tally: Tally,
}

/// Draws layers `range` of a model; the first brings the embeddings with it, the last the head.
pub(crate) fn draw<W: io::Write>(
    model: &Model,
    source: &Source,
    range: Range<usize>,
    rounding: Request,
    data: W,
    count: &mut dyn FnMut(u64) -> Result<(), Error>,
) -> Result<Drawn<W>, Failure> {
    let mut net = Net::new(data);
    let mut weights = Weights::new(source, rounding, count);
    let first = range.start == 0;
    let width = model.hidden as i64;
    let input = if first {
        net.parameter("input_ids", Kind::I64, &[ANY, ANY])
    } else {
        net.parameter("inputs_embeds", Kind::F32, &[ANY, ANY, width])
    };
    let attention = net.parameter("attention_mask", Kind::I64, &[ANY, ANY]);
    let positions = net.parameter("position_ids", Kind::I64, &[ANY, ANY]);
    let beam = net.parameter("beam_idx", Kind::I32, &[ANY]);
    let batch = net.length("batch", &input, 0)?;
    let masks = Masks::new(&mut net, &attention, &positions)?;
    let angles = Angles::new(&mut net, &positions)?;
    let mut state = if first {
        let table = weights.table(&mut net, "model.embed_tokens", &model.embedding)?;
        let rows = net.gather("model.embed_tokens", &table, &input)?;
        match model.embedding_scale {
            Some(scale) => {
                let scale = net.f32("model.embed_tokens/scale", scale)?;
                net.multiply("model.embed_tokens/scaled", &rows, &scale)
            }
            None => rows,
        }
    } else {
        input
    };
    let mut draw = Draw { net, weights, model, batch, beam, masks, angles };
    let last = range.end == model.blocks.len();
    for layer in range {
        state = draw.block(layer, &model.blocks[layer], &state)?;
    }
    if last {
        state = draw.head(&state)?;
        draw.net.result("logits", &state);
    } else {
        draw.net.result("hidden_out", &state);
    }
    let tally = draw.weights.finish();
    let (text, data) = draw.net.finish(&model.family)?;
    Ok(Drawn { text, data, tally })
}

/// Why drawing ended early: the data could not be written, or the weights not be had.
#[derive(Debug)]
pub(crate) enum Failure {
    Write(io::Error),
    Other(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl<W: io::Write> Draw<'_, W> {
    fn block(&mut self, layer: usize, block: &Block, state: &Value) -> Result<Value, Failure> {
        let name = format!("model.layers.{layer}");
        let x = self.norm(&format!("{name}.attention_norm"), &block.attention_norm, state)?;
        let mut x = self.attention(layer, &format!("{name}.attention"), &block.attention, &x)?;
        if let Some(norm) = &block.post_attention_norm {
            x = self.norm(&format!("{name}.post_attention_norm"), norm, &x)?;
        }
        let state = self.net.add(&format!("{name}.attention/residual"), state, &x);
        let x = self.norm(&format!("{name}.mlp_norm"), &block.mlp_norm, &state)?;
        let mut x = self.mlp(&format!("{name}.mlp"), &block.mlp, &x)?;
        if let Some(norm) = &block.post_mlp_norm {
            x = self.norm(&format!("{name}.post_mlp_norm"), norm, &x)?;
        }
        Ok(self.net.add(&format!("{name}.mlp/residual"), &state, &x))
    }

    fn mlp(&mut self, name: &str, mlp: &Mlp, x: &Value) -> Result<Value, Failure> {
        let gate = self.linear(&format!("{name}.gate"), &mlp.gate, x)?;
        let up = self.linear(&format!("{name}.up"), &mlp.up, x)?;
        let activation = format!("{name}/activation");
        let gate = match mlp.activation {
            Activation::Silu => self.net.unary(&activation, "Swish@opset4", &gate),
            Activation::GeluTanh => self.net.gelu_tanh(&activation, &gate),
        };
        let product = self.net.multiply(&format!("{name}/product"), &gate, &up);
        self.linear(&format!("{name}.down"), &mlp.down, &product)
    }

    /// The form that becomes one RMS operation: the gain has the rank of what it multiplies.
    fn norm(&mut self, name: &str, norm: &Norm, x: &Value) -> Result<Value, Failure> {
        let gain = self.weights.gain(norm)?;
        let rank = x.dims.len();
        let mut dims = vec![1; rank];
        let net = &mut self.net;
        let two = net.f32s(&format!("{name}/two"), &dims, &[2.0])?;
        let epsilon = net.f32s(&format!("{name}/epsilon"), &dims, &[norm.epsilon])?;
        let one = net.f32s(&format!("{name}/one"), &dims, &[1.0])?;
        dims[rank - 1] = gain.len() as i64;
        let gain = net.f32s(&format!("{name}/gain"), &dims, &gain)?;
        let square = net.power(&format!("{name}/square"), x, &two);
        let mean = net.mean(&format!("{name}/mean"), &square)?;
        let sum = net.add(&format!("{name}/sum"), &mean, &epsilon);
        let root = net.unary(&format!("{name}/root"), "Sqrt", &sum);
        let factor = net.divide(&format!("{name}/factor"), &one, &root);
        let unit = net.multiply(&format!("{name}/unit"), x, &factor);
        Ok(net.multiply(name, &unit, &gain))
    }

    fn head(&mut self, state: &Value) -> Result<Value, Failure> {
        let model = self.model;
        let x = self.norm("model.norm", &model.norm, state)?;
        let mut logits = self.head_matrix(&x)?;
        if let Some(scale) = model.logit_scale {
            let scale = self.net.f32("lm_head/scale", scale)?;
            logits = self.net.multiply("lm_head/scaled", &logits, &scale);
        }
        match model.logit_cap {
            Some(cap) => Ok(self.cap("lm_head/cap", &logits, cap)?),
            None => Ok(logits),
        }
    }

    /// `cap · tanh(x / cap)`.
    fn cap(&mut self, name: &str, x: &Value, cap: f32) -> io::Result<Value> {
        let cap = self.net.f32(&format!("{name}/value"), cap)?;
        let share = self.net.divide(&format!("{name}/share"), x, &cap);
        let bent = self.net.unary(&format!("{name}/tanh"), "Tanh", &share);
        Ok(self.net.multiply(name, &bent, &cap))
    }
}
