//! Self-attention with its cache: grouped heads, head norms, rotation, windows, capped scores.

use std::io;

use super::{Draw, Failure};
use crate::ir::{ANY, Value};
use crate::model::{Attention, Linear, Norm};

impl<W: io::Write> Draw<'_, W> {
    pub(super) fn attention(
        &mut self,
        layer: usize,
        name: &str,
        a: &Attention,
        x: &Value,
    ) -> Result<Value, Failure> {
        let query = self.heads(&format!("{name}.query"), &a.query, x, a.heads, a)?;
        let query = self.prepare(&format!("{name}.query"), query, a.query_norm.as_ref(), a)?;
        let key = self.heads(&format!("{name}.key"), &a.key, x, a.kv_heads, a)?;
        let key = self.prepare(&format!("{name}.key"), key, a.key_norm.as_ref(), a)?;
        let value = self.heads(&format!("{name}.value"), &a.value, x, a.kv_heads, a)?;
        let key = self.remember(&format!("{name}.key"), &format!("past_key_values.{layer}.key"), &key, a)?;
        let value =
            self.remember(&format!("{name}.value"), &format!("past_key_values.{layer}.value"), &value, a)?;
        let key = self.spread(&format!("{name}.key"), &key, a)?;
        let value = self.spread(&format!("{name}.value"), &value, a)?;
        let mask = self.masks.get(&mut self.net, a.window)?;
        let core = format!("{name}/core");
        let seen = match a.cap {
            Some(cap) => self.capped(&core, [&query, &key, &value, &mask], a, cap)?,
            None => {
                let usual = 1.0 / (a.head_dim as f32).sqrt();
                let scale = (a.scale != usual).then_some(a.scale);
                self.net.attention(&core, [&query, &key, &value, &mask], scale)?
            }
        };
        let seen = self.net.transpose(&format!("{name}/tokens"), &seen, &[0, 2, 1, 3])?;
        let width = (a.heads * a.head_dim) as i64;
        let seen = self.net.reshape(&format!("{name}/joined"), &seen, &[0, 0, width])?;
        self.linear(&format!("{name}.output"), &a.output, &seen)
    }

    /// A projection, divided into heads `[batch, new, heads, width]`.
    fn heads(
        &mut self,
        name: &str,
        linear: &Linear,
        x: &Value,
        heads: usize,
        a: &Attention,
    ) -> Result<Value, Failure> {
        let x = self.linear(name, linear, x)?;
        let shape = [0, 0, heads as i64, a.head_dim as i64];
        let x = self.net.reshape(&format!("{name}/heads"), &x, &shape)?;
        Ok(self.net.transpose(&format!("{name}/turned"), &x, &[0, 2, 1, 3])?)
    }

    /// Head norm and rotation.
    fn prepare(
        &mut self,
        name: &str,
        mut x: Value,
        norm: Option<&Norm>,
        a: &Attention,
    ) -> Result<Value, Failure> {
        if let Some(norm) = norm {
            x = self.norm(&format!("{name}_norm"), norm, &x)?;
        }
        let Some(number) = a.rope else { return Ok(x) };
        let turn = self.angles.get(&mut self.net, number, &self.model.ropes[number])?;
        Ok(turn.apply(&mut self.net, &format!("{name}/rope"), &x)?)
    }

    /// What was kept of earlier tokens, in the order of the beams, and after it the new; all of it is kept.
    fn remember(&mut self, name: &str, id: &str, new: &Value, a: &Attention) -> io::Result<Value> {
        let net = &mut self.net;
        let (heads, width) = (a.kv_heads as i64, a.head_dim as i64);
        let heads_value = net.i64s(&format!("{name}/kept/heads"), &[heads])?;
        let none = net.i64s(&format!("{name}/kept/none"), &[0])?;
        let width_value = net.i64s(&format!("{name}/kept/width"), &[width])?;
        let parts = [&self.batch, &heads_value, &none, &width_value];
        let shape = net.concat(&format!("{name}/kept/shape"), &parts, 0);
        let zero = net.f32(&format!("{name}/kept/zero"), 0.0)?;
        let dims = vec![ANY, heads, ANY, width];
        let empty = net.broadcast(&format!("{name}/kept/empty"), &zero, &shape, "numpy", dims);
        let kept = net.read_variable(&format!("{name}/kept"), id, &empty);
        let kept = net.gather(&format!("{name}/beams"), &kept, &self.beam)?;
        let all = net.concat(&format!("{name}/all"), &[&kept, new], 2);
        net.assign_variable(&format!("{name}/keep"), id, &all);
        Ok(all)
    }

    /// Each head once for every query head of its group.
    fn spread(&mut self, name: &str, x: &Value, a: &Attention) -> io::Result<Value> {
        let group = (a.heads / a.kv_heads) as i64;
        if group == 1 {
            return Ok(x.clone());
        }
        let (heads, width) = (a.kv_heads as i64, a.head_dim as i64);
        let net = &mut self.net;
        let x = net.unsqueeze(&format!("{name}/group"), x, &[2])?;
        let shape = net.i64s(&format!("{name}/copies"), &[1, 1, group, 1, 1])?;
        let dims = vec![ANY, heads, group, ANY, width];
        let x = net.broadcast(&format!("{name}/copied"), &x, &shape, "bidirectional", dims);
        net.reshape(&format!("{name}/spread"), &x, &[0, a.heads as i64, -1, width])
    }

    /// No operation of OpenVINO caps scores, so the product is drawn in its parts.
    fn capped(
        &mut self,
        name: &str,
        [query, key, value, mask]: [&Value; 4],
        a: &Attention,
        cap: f32,
    ) -> io::Result<Value> {
        let scale = self.net.f32(&format!("{name}/scale"), a.scale)?;
        let query = self.net.multiply(&format!("{name}/scaled"), query, &scale);
        let mut scores = self.net.matmul(&format!("{name}/scores"), &query, key, true);
        scores.dims[3] = ANY;
        let scores = self.cap(&format!("{name}/capped"), &scores, cap)?;
        let scores = self.net.add(&format!("{name}/masked"), &scores, mask);
        let shares = self.net.softmax(&format!("{name}/shares"), &scores);
        Ok(self.net.matmul(name, &shares, value, false))
    }
}
