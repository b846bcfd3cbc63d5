//! Rotary position encodings (Su et al. 2021) and the ways to stretch them, as angles per position.
//!
//! Sources of the formulas: position interpolation (Chen et al. 2023), YaRN (Peng et al. 2023), LongRoPE (Ding et al.
//! 2024), and for Llama 3.1 the piecewise scaling that its reference code publishes. Computed in f64, rounded once.

use std::f64::consts::PI;

/// How positions become angles.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    /// Elements of a head that are rotated: even, at most the head's width.
    pub(crate) dims: usize,
    /// Base of the geometric row of wavelengths.
    pub(crate) base: f64,
    /// Stretching.
    pub(crate) scaling: Scaling,
    /// Factor on sines and cosines, beside what the scaling brings.
    pub(crate) magnitude: f64,
}

/// Ways to stretch a model's positions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaling {
    /// As trained.
    None,
    /// All frequencies divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Long wavelengths divided, short ones kept, a smooth band between.
    Llama3 {
        /// Factor of long wavelengths.
        factor: f64,
        /// Wavelengths above `context / low` are divided.
        low: f64,
        /// Wavelengths below `context / high` are kept.
        high: f64,
        /// Context before stretching.
        context: f64,
    },
    /// A ramp over the dimensions between kept and divided frequencies; scores are sharpened.
    Yarn {
        /// Factor of long wavelengths.
        factor: f64,
        /// Rotations over `context` above which a frequency is kept.
        fast: f64,
        /// Rotations below which it is divided.
        slow: f64,
        /// Context before stretching.
        context: f64,
        /// Whether the ramp's ends are rounded to whole dimensions.
        truncate: bool,
        /// Factor on sines and cosines; by default `1 + 0.1 ln factor`.
        magnitude: Option<f64>,
    },
    /// A divisor for each frequency, read from the file (LongRoPE, and GGUF's form of Llama 3).
    Factors(Vec<f32>),
}

impl Rope {
    /// Plain rotation.
    pub(crate) fn plain(dims: usize, base: f64) -> Self {
        Self { dims, base, scaling: Scaling::None, magnitude: 1.0 }
    }

    /// Radians per position for each pair.
    pub(crate) fn frequencies(&self) -> Vec<f32> {
        (0..self.dims / 2).map(|pair| self.frequency(pair) as f32).collect()
    }

    /// What sines and cosines are multiplied by.
    pub(crate) fn scale(&self) -> f32 {
        let own = match &self.scaling {
            Scaling::Yarn { magnitude: Some(magnitude), .. } => *magnitude,
            Scaling::Yarn { factor, .. } if *factor > 1.0 => 1.0 + 0.1 * factor.ln(),
            _ => 1.0,
        };
        (own * self.magnitude) as f32
    }

    fn frequency(&self, pair: usize) -> f64 {
        let plain = self.base.powf(-2.0 * pair as f64 / self.dims as f64);
        match &self.scaling {
            Scaling::None => plain,
            Scaling::Linear { factor } => plain / factor,
            Scaling::Factors(factors) => plain / factors.get(pair).map_or(1.0, |factor| f64::from(*factor)),
            Scaling::Llama3 { factor, low, high, context } => {
                let wavelength = 2.0 * PI / plain;
                if wavelength < context / high {
                    plain
                } else if wavelength > context / low {
                    plain / factor
                } else {
                    let smooth = (context / wavelength - low) / (high - low);
                    (1.0 - smooth) * plain / factor + smooth * plain
                }
            }
            Scaling::Yarn { factor, fast, slow, context, truncate, .. } => {
                let mut low = self.pair_of(*fast, *context);
                let mut high = self.pair_of(*slow, *context);
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
                let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                plain / factor * ramp + plain * (1.0 - ramp)
            }
        }
    }

    /// The pair, not necessarily whole, that turns `rotations` times over `context` positions.
    fn pair_of(&self, rotations: f64, context: f64) -> f64 {
        self.dims as f64 * (context / (rotations * 2.0 * PI)).ln() / (2.0 * self.base.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(scaling: Scaling) -> Rope {
        Rope { scaling, ..Rope::plain(64, 10000.0) }
    }

    #[test]
    fn plain_frequencies_fall_from_one_by_the_base() {
        let f = Rope::plain(64, 10000.0).frequencies();
        assert_eq!((f.len(), f[0]), (32, 1.0));
        assert!((f[16] - 0.01).abs() < 1e-9);
    }

    #[test]
    fn yarn_keeps_short_wavelengths_and_divides_long_ones() {
        let scaling = Scaling::Yarn {
            factor: 4.0,
            fast: 32.0,
            slow: 1.0,
            context: 4096.0,
            truncate: true,
            magnitude: None,
        };
        let (yarn, plain) = (with(scaling), Rope::plain(64, 10000.0));
        let (f, p) = (yarn.frequencies(), plain.frequencies());
        assert_eq!(f[0], p[0]);
        assert_eq!(f[31], p[31] / 4.0);
        // Between the ends: the ramp goes from 10 = floor(10.4) to 23 = ceil(22.5) for these numbers.
        assert_eq!((f[10], f[23]), (p[10], p[23] / 4.0));
        let ramp = 5.0 / 13.0;
        assert!((f[15] / p[15] - (ramp / 4.0 + 1.0 - ramp)).abs() < 1e-6, "{}", f[15] / p[15]);
        assert!((yarn.scale() - 1.138_629_4).abs() < 1e-6);
    }

    #[test]
    fn llama3_divides_by_wavelength() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, context: 8192.0 };
        let rope = Rope { scaling, ..Rope::plain(128, 500_000.0) };
        let (f, p) = (rope.frequencies(), Rope::plain(128, 500_000.0).frequencies());
        assert_eq!(f[0], p[0]);
        assert_eq!(f[63], p[63] / 8.0);
        let between = f.iter().zip(&p).filter(|(a, b)| **a < **b && **a > **b / 8.0).count();
        assert!(between > 3, "{between} frequencies lie in the band");
        assert_eq!(rope.scale(), 1.0);
    }

    #[test]
    fn factors_of_the_file_divide_each_frequency() {
        let rope = with(Scaling::Factors((0..32).map(|i| 1.0 + i as f32).collect()));
        let p = Rope::plain(64, 10000.0).frequencies();
        for (i, (got, plain)) in rope.frequencies().iter().zip(&p).enumerate() {
            assert!((got * (1.0 + i as f32) - plain).abs() <= plain * 1e-6);
        }
    }
}
