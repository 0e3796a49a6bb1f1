//! The paths that a candidate with faults in it needs.

use std::sync::Arc;

use karat_audit::Result;
use karat_model::Checkpoint;
use karat_optimized::Optimized;

use crate::faulty::{Faulty, Put};
use crate::{Bench, Fault, Files, Size};

/// Faults with the paths that they need together.
pub(crate) struct Seeded {
    faults: Vec<(&'static Fault, Size, Option<Optimized>)>,
    /// `None`: the base.
    own: Option<Optimized>,
    checkpoint: Arc<Checkpoint>,
}

impl Bench {
    /// Makes what these faults need: files with all their edits, without every patch that one of them leaves out.
    pub(crate) fn seeded(&self, faults: &[(&'static Fault, Size)]) -> Result<Seeded> {
        let without: Vec<&str> = faults.iter().flat_map(|(fault, _)| fault.without).copied().collect();
        let edited = |more: Option<fn(&mut Files)>| -> Result<Arc<Checkpoint>> {
            let mut files = Files::of(&self.files);
            for (fault, size) in faults {
                let Some(edit) = fault.files else { continue };
                let before = files.clone();
                edit(&mut files);
                if let Size::Share(share) = size {
                    files.shrink(&before, *share);
                }
            }
            more.iter().for_each(|edit| edit(&mut files));
            Ok(files.checkpoint()?)
        };
        let has_files = faults.iter().any(|(fault, _)| fault.files.is_some());
        let checkpoint = if has_files { edited(None)? } else { self.checkpoint.clone() };
        let own = (has_files || !without.is_empty()).then(|| self.path(&checkpoint, &without)).transpose()?;
        let put = |(fault, size): &(&'static Fault, Size)| -> Result<_> {
            let donor = fault.donor.map(|edit| self.path(&edited(Some(edit))?, &without)).transpose()?;
            Ok((*fault, size.clone(), donor))
        };
        let faults = faults.iter().map(put).collect::<Result<Vec<_>>>()?;
        Ok(Seeded { faults, own, checkpoint })
    }
}

impl Seeded {
    /// The candidate; `base` is the path without a fault.
    pub(crate) fn faulty<'a>(&'a self, base: &'a Optimized) -> Faulty<'a> {
        let put = |(fault, size, donor): &'a (&'static Fault, Size, Option<Optimized>)| Put {
            fault,
            size: size.clone(),
            donor: donor.as_ref(),
        };
        let faults = self.faults.iter().map(put).collect();
        Faulty { inner: self.own.as_ref().unwrap_or(base), checkpoint: self.checkpoint.clone(), faults, shows: None }
    }
}
