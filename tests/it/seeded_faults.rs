//! Faults that change decisions alone (which experts, which entries, which id): every tensor is then right for the decision
//! that was taken, so that only the gates on changed decisions can see them. Each must fail at its own place. Those after
//! public reports are in the crate `faults`, with its own test.

#![expect(clippy::unnecessary_wraps, reason = "the type of Fault::edit")]

use karat_bundle::TapRow;
use karat_faults::{Bench, CONTROL, Edit, Fault};
use karat_seam::{Block, Result, Tap};

static FAULTS: [Fault; 6] = [
    Fault {
        id: "worst expert",
        block: Block::Layer(3),
        rows: |pos, _| pos % 16 == 5,
        taps: &[Tap::FfnIdx],
        edit: Some(worst_expert),
        ..Fault::NONE
    },
    Fault {
        id: "worst entry",
        block: Block::Layer(3),
        rows: |pos, _| pos % 16 == 5,
        taps: &[Tap::AttnSelected],
        edit: Some(worst_entry),
        ..Fault::NONE
    },
    Fault {
        id: "shifted entries",
        block: Block::Layer(1),
        rows: |pos, _| pos % 8 == 7,
        taps: &[Tap::AttnSelected],
        edit: Some(shifted_entries),
        ..Fault::NONE
    },
    Fault {
        id: "no newest entry",
        block: Block::Layer(1),
        taps: &[Tap::AttnSelected],
        edit: Some(no_newest_entry),
        ..Fault::NONE
    },
    Fault {
        id: "swapped best",
        rows: |pos, _| pos % 16 == 5,
        taps: &[Tap::Logits],
        edit: Some(|e| swapped_best(e, 1)),
        ..Fault::NONE
    },
    Fault {
        id: "lost best",
        rows: |pos, _| pos == 205,
        taps: &[Tap::Logits],
        edit: Some(|e| swapped_best(e, e.width() - 1)),
        ..Fault::NONE
    },
];

/// Rows over their tolerance.
fn over(rows: &[TapRow]) -> Vec<&TapRow> {
    let is_over = |r: &&TapRow| match (r.value, r.tolerance) {
        (Some(v), Some(t)) => !(v <= t),
        _ => false,
    };
    rows.iter().filter(is_over).collect()
}

/// The rank of each score, best first, the lower index first among equals.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order
}

fn hit(e: &Edit<'_>) -> Vec<usize> {
    (0..e.rows().len()).filter(|i| e.hits(*i)).collect()
}

/// The expert with the lowest score instead of the last one.
fn worst_expert(e: &mut Edit<'_>) -> Result<()> {
    for i in hit(e) {
        let order = order(&e.other(Tap::FfnRouterLogits, i)?);
        let idx = e.experts(i);
        let worst = order.iter().rev().find(|x| !idx.contains(&(**x as i64))).unwrap();
        *idx.last_mut().unwrap() = *worst as i64;
    }
    Ok(())
}

/// The worst visible entry instead of the best.
fn worst_entry(e: &mut Edit<'_>) -> Result<()> {
    for i in hit(e) {
        let row = e.other(Tap::AttnIndexScore, i)?;
        let order = order(&row);
        let mask = e.mask(i);
        let worst = order.iter().rev().find(|x| row[**x].is_finite()).copied();
        if let Some(worst) = worst.filter(|w| mask[*w] == 0) {
            (mask[order[0]], mask[worst]) = (0, 1);
        }
    }
    Ok(())
}

/// The entries after those that were chosen: an index that is off by one.
fn shifted_entries(e: &mut Edit<'_>) -> Result<()> {
    for i in hit(e) {
        // Visible entries alone, so that nothing of the future is attended to.
        let visible = (e.rows()[i].pos as usize + 1) / 4;
        e.mask(i)[..visible].rotate_right(1);
    }
    Ok(())
}

/// The newest entry is never attended to: the best one left out takes its place.
fn no_newest_entry(e: &mut Edit<'_>) -> Result<()> {
    for i in hit(e) {
        let visible = (e.rows()[i].pos as usize + 1) / 4;
        let best = order(&e.other(Tap::AttnIndexScore, i)?);
        let mask = e.mask(i);
        if visible == 0 || mask[visible - 1] == 0 {
            continue;
        }
        if let Some(next) = best.into_iter().find(|x| *x < visible && mask[*x] == 0) {
            (mask[visible - 1], mask[next]) = (0, 1);
        }
    }
    Ok(())
}

/// The best id has the logit of the one of this rank, and the other way round.
fn swapped_best(e: &mut Edit<'_>, rank: usize) -> Result<()> {
    for i in hit(e) {
        let row = e.row(i);
        let order = order(row);
        row.swap(order[0], order[rank]);
    }
    Ok(())
}

#[test]
fn a_changed_decision_is_found_where_it_was_made() {
    let faults: Vec<&'static Fault> = FAULTS.iter().collect();
    let found = Bench::with_patches(2, Vec::new()).unwrap().audit(&faults).unwrap();
    assert_eq!(found[0].id, CONTROL);
    assert!(over(&found[0].taps).is_empty(), "stock has no fault: {:?}", over(&found[0].taps));
    for (fault, found) in faults.into_iter().zip(&found[1..]) {
        let (name, rows) = (fault.id, over(&found.taps));
        let first = rows.iter().map(|r| r.order).min().unwrap_or_else(|| panic!("{name}: not found"));
        for row in rows.iter().filter(|r| r.order == first) {
            let place = (fault.layer(), fault.taps[0].name());
            assert_eq!((row.layer.clone(), row.tap.as_str()), place, "{name}");
        }
        let gate = rows.iter().find(|r| r.order == first && r.gate == "unexplained_flips");
        let gate = gate.unwrap_or_else(|| panic!("{name}: not found by its own gate"));
        let position = gate.max_abs_position.unwrap() as u32;
        let phase = karat_seam::Phase::Prefill;
        assert!((fault.rows)(position, phase), "{name}: position {position} is none that was changed");
    }
}
