//! The named histories: what each of them is there for must happen in it.

use karat_seam::{Requests, Sequence, Span, SpanKind, Turn};

use super::random::layers;
use crate::serving::*;

const MINI: Geometry = Geometry { page: 16, window: 16, csa: 4, hca: 16, speculative: false };

fn conversation(id: &str, seed: u32, cuts: &[u32]) -> Sequence {
    let mut at = 0;
    let spans = cuts.iter().enumerate().map(|(i, len)| {
        at += len;
        let kind = if i % 2 == 0 { SpanKind::Prompt } else { SpanKind::Generated };
        Span { kind, start: at - len, end: at }
    });
    let spans: Vec<Span> = spans.collect();
    let ids: Vec<u32> = (0..at).map(|p| (p * 7 + seed * 13 + p * p % 11) % 500).collect();
    Sequence { id: id.into(), ids: ids.into(), turns: vec![Turn { spans, interrupted: false }] }
}

fn requests() -> Requests {
    let seqs = vec![conversation("a", 1, &[70, 20, 31, 24]), Sequence::prompt("b", (0..101).collect::<Vec<u32>>())];
    Requests { seqs }
}

#[test]
fn every_history_reaches_the_final_context_in_its_own_way() {
    let requests = requests();
    for history in Served::ALL {
        assert_eq!(history.name().parse::<Served>().unwrap(), history);
        for seed in 0..4 {
            let script = history.script(&requests, MINI, seed);
            let program = script.program().unwrap();
            assert_eq!(check_owners(&program, &script.setup.geometry, layers(&MINI)), None, "{history}");
            let ends: Vec<u32> = program.done().map(|(request, ..)| program.requests[request].0).collect();
            assert_eq!(ends, [0, 1], "{history}");
            for (request, told, rows) in program.done() {
                let ids = &requests.seqs[program.requests[request].0 as usize].ids;
                assert_eq!((told.seen, rows.len()), (ids.len(), ids.len()));
                for (pos, row) in rows.iter().enumerate() {
                    let row = &program.rows[*row];
                    assert_eq!((row.id.pos as usize, row.token), (pos, ids[pos]), "{history}");
                }
            }
            let facts = Facts::of(&program);
            assert_eq!(facts.lacks(history), None);
            let fine = match history {
                Served::Cold => facts.again == 0 && facts.decoded == 24 && facts.reused == 0 && facts.prefills == 4,
                Served::Warm => facts.reused == 7 * 16 + 4 * 16 && facts.again > 0,
                Served::Chunked => facts.largest_prefill == 7 && facts.prefills == 18 + 15,
                Served::AfterAbort => facts.again > 0 && facts.reused == 8 * 16 + 4 * 16 && facts.decoded > 24,
                Served::AfterEvict => facts.again > 150 && facts.reused == 0,
                Served::AfterTransfer => facts.moved > 20,
                Served::Decoded => facts.decoded == 44 + 34,
                Served::Batched => facts.batched > 10 && facts.reused == 4 * 16 + 3 * 16,
                Served::GraphReplayed => facts.padded > 5 && facts.replayed > facts.padded,
                Served::Speculative => facts.again > 5 && facts.accepted > 5 && facts.decoded > 24 + 34,
            };
            assert!(fine, "{history}: {facts:?}");
        }
    }
}

#[test]
fn unknown_histories_are_refused() {
    for bad in ["", "lukewarm", "cold,warm"] {
        assert!(bad.parse::<Served>().is_err(), "{bad}");
    }
}
