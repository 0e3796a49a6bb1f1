use karat_seam::{Phase, Requests, Sequence, Span, SpanKind, Turn};

use crate::serving::*;

fn sequence(cuts: &[(SpanKind, u32)]) -> Sequence {
    let mut at = 0;
    let spans = cuts
        .iter()
        .map(|&(kind, len)| {
            at += len;
            Span { kind, start: at - len, end: at }
        })
        .collect();
    let ids = vec![0u32; at as usize];
    Sequence { id: "a".into(), ids: ids.into(), turns: vec![Turn { spans, interrupted: true }] }
}

/// Steps as (start, end, decode?).
fn steps(history: History, sequence: Sequence) -> Vec<(u32, u32, bool)> {
    let schedule = Schedule::new(&Requests { seqs: vec![sequence] }, history, None).unwrap();
    let steps = schedule.segments.iter().flat_map(|s| &s.steps);
    steps.map(|s| (s.start, s.end, s.phase == Phase::Decode)).collect()
}

#[test]
fn a_history_says_which_rows_are_decoded() {
    use SpanKind::{Generated as G, Prompt as P};
    let turns = || sequence(&[(P, 4), (G, 2), (P, 3), (G, 2)]);
    assert_eq!(steps(History::Cold, turns()), [(0, 9, false), (9, 10, true), (10, 11, true)]);
    assert_eq!(
        steps(History::Chunked { size: 4 }, turns()),
        [(0, 4, false), (4, 8, false), (8, 9, false), (9, 10, true), (10, 11, true)]
    );
    assert_eq!(
        steps(History::Decoded, turns()),
        [(0, 4, false), (4, 5, true), (5, 6, true), (6, 9, false), (9, 10, true), (10, 11, true)]
    );
    let tail = || sequence(&[(P, 2), (G, 1), (P, 2)]);
    assert_eq!(steps(History::Cold, tail()), [(0, 2, false), (2, 3, true), (3, 5, false)]);
    assert_eq!(steps(History::Cold, Sequence::prompt("a", vec![0; 5])), [(0, 5, false)]);
    assert_eq!(steps(History::Cold, sequence(&[(P, 0), (G, 2)])), [(0, 1, true), (1, 2, true)]);
}

#[test]
fn segments_cover_the_rows_and_know_the_phase() {
    use SpanKind::{Generated as G, Prompt as P};
    let seqs = vec![sequence(&[(P, 4), (G, 2), (P, 3)]), Sequence::prompt("b", vec![0; 3])];
    let schedule = Schedule::new(&Requests { seqs }, History::Chunked { size: 3 }, None).unwrap();
    let mut at = 0;
    for segment in &schedule.segments {
        assert_eq!(segment.rows.start, at);
        at = segment.rows.end;
        for row in &schedule.rows[segment.rows.clone()] {
            assert_eq!((row.seq, schedule.phase_of(*row)), (segment.seq, segment.phase));
        }
    }
    assert_eq!(at, schedule.rows.len());
    assert_eq!(schedule.segments.iter().map(|s| s.last).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(schedule.largest_prefill(), 3);
}

#[test]
fn spans_that_do_not_cover_the_ids_are_refused() {
    let whole = sequence(&[(SpanKind::Prompt, 4)]);
    let longer = Sequence { ids: vec![0u32; 5].into(), ..whole.clone() };
    let mut gap = whole;
    gap.turns[0].spans[0].start = 1;
    let empty = Sequence::prompt("nothing", Vec::new());
    let chunks =
        Schedule::new(&Requests { seqs: vec![Sequence::prompt("a", vec![0])] }, History::Chunked { size: 0 }, None);
    assert!(chunks.unwrap_err().to_string().contains("at least one token"));
    for bad in [longer, gap, empty] {
        let name = bad.id.clone();
        let error = Schedule::new(&Requests { seqs: vec![bad] }, History::Cold, None).unwrap_err();
        assert!(error.to_string().contains(&format!("sequence {name}")), "{error}");
    }
}

#[test]
fn histories_read_back() {
    for text in ["cold", "decoded", "chunked:64"] {
        assert_eq!(text.parse::<History>().unwrap().to_string(), text);
    }
    for bad in ["chunked", "chunked:0", "chunked:x", "warm", ""] {
        assert!(bad.parse::<History>().is_err(), "{bad}");
    }
}

#[test]
fn the_window_keeps_the_last_rows_whatever_the_pieces() {
    let rows: Vec<f32> = (0..2 * 11).map(|v| v as f32).collect();
    let mut whole = Window::new(4, 2);
    whole.write(&rows);
    let mut pieces = Window::new(4, 2);
    for piece in [&rows[..2], &rows[2..12], &rows[12..14], &rows[14..]] {
        pieces.write(piece);
    }
    for window in [&whole, &pieces] {
        assert_eq!(window.canonical(), ((16..22).map(|v| v as f32).collect(), vec![8, 9, 10]));
        assert_eq!(window.row(7), [14.0, 15.0]);
    }
}
