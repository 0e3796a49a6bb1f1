//! What a limit can bound.

use serde::{Deserialize, Serialize};

use crate::{PatchRow, TapRow};

/// The table that a metric is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// taps.csv: the worst row counts.
    Taps,
    /// tokens.csv.
    Tokens,
    /// recall.csv.
    Recall,
    /// patches.csv.
    Patches,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal of $table:ident,)+) => {
        /// A metric of a bundle's tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub enum Metric {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
            /// Share of answers that stock gives and the candidate does not, less those it gains.
            #[default]
            #[serde(rename = "recall_lost")]
            RecallLost,
        }

        impl Metric {
            /// Every metric.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+ Self::RecallLost];

            /// The word in a policy.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ Self::RecallLost => "recall_lost" }
            }

            /// Where its numbers stand.
            pub fn table(self) -> Table {
                match self { $(Self::$name => Table::$table,)+ Self::RecallLost => Table::Recall }
            }
        }
    };
}

metrics! {
    /// The injected error in the gate's unit (column `value`).
    Value = "value" of Taps,
    /// Column `rel_l2`.
    RelL2 = "rel_l2" of Taps,
    /// Column `max_abs`.
    MaxAbs = "max_abs" of Taps,
    /// Column `row_p99_rel_l2`.
    RowP99RelL2 = "row_p99_rel_l2" of Taps,
    /// Column `ulp_p99`.
    UlpP99 = "ulp_p99" of Taps,
    /// Magnitude of column `sign_bias`.
    SignBias = "sign_bias" of Taps,
    /// Column `saturated`.
    Saturated = "saturated" of Taps,
    /// Column `total`.
    Total = "total" of Taps,
    /// Column `injected`.
    Injected = "injected" of Taps,
    /// Column `ratio_to_predicted`: contract-relative.
    RatioToPredicted = "ratio_to_predicted" of Taps,
    /// Column `added_to_stock`: stock-relative.
    AddedToStock = "added_to_stock" of Taps,
    /// Mean KL from golden, nats.
    Kl = "kl" of Tokens,
    /// 99th percentile of the KL from golden.
    KlP99 = "kl_p99" of Tokens,
    /// Largest KL from golden.
    KlMax = "kl_max" of Tokens,
    /// Mean KL beyond stock's at the same positions.
    AddedKl = "added_kl" of Tokens,
    /// Share of positions whose most likely id is not golden's.
    Flips = "flips" of Tokens,
    /// The same, less the chance that noise of stock's size changes it.
    FlipsBeyondExpected = "flips_beyond_expected" of Tokens,
    /// The same, less stock's.
    AddedFlips = "added_flips" of Tokens,
    /// Measured over claimed error of a patch at its own ops: contract-relative.
    MeasuredOverClaimed = "measured_over_claimed" of Patches,
    /// Measured speed-up of a patch (`min`).
    Speedup = "speedup" of Patches,
}

impl Metric {
    /// True when it is a difference to stock, which stock itself does not have.
    pub fn is_added(self) -> bool {
        matches!(
            self,
            Self::AddedKl | Self::AddedFlips | Self::AddedToStock | Self::FlipsBeyondExpected | Self::RecallLost
        )
    }

    /// Its number in a row of taps.csv.
    pub fn of_tap(self, row: &TapRow) -> Option<f64> {
        match self {
            Self::Value => row.value,
            Self::RelL2 => row.rel_l2,
            Self::MaxAbs => row.max_abs,
            Self::RowP99RelL2 => row.row_p99_rel_l2,
            Self::UlpP99 => row.ulp_p99,
            Self::SignBias => row.sign_bias.map(f64::abs),
            Self::Saturated => Some(row.saturated as f64),
            Self::Total => row.total,
            Self::Injected => row.injected,
            Self::RatioToPredicted => row.ratio_to_predicted,
            Self::AddedToStock => row.added_to_stock,
            _ => None,
        }
    }

    /// Its number in a row of patches.csv.
    pub fn of_patch(self, row: &PatchRow) -> Option<f64> {
        match self {
            Self::Speedup => row.speedup,
            Self::MeasuredOverClaimed => row.measured_error.map(|e| e / row.claimed_error),
            _ => None,
        }
    }
}
