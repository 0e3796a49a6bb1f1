use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn sample() -> Bundle {
    let tap = TapRow {
        scenario: "story, with a comma".into(),
        sequence: "a\"b".into(),
        layer: "12".into(),
        tap: "attn.o".into(),
        n: 4096,
        rel_l2: Some(f64::NAN),
        max_abs: Some(f64::INFINITY),
        snr_db: Some(f64::NEG_INFINITY),
        gain: Some(1.0000000000000002),
        sum_dd: Some(5e-324),
        verdict: Some(Verdict::Fail),
        ..TapRow::default()
    };
    let mut run = Run { producer: "karat test".into(), ..Run::default() };
    run.wall_s.total = f64::INFINITY;
    run.findings.push(Finding::new(Verdict::Unproven, "a reason"));
    let bad = FirstBad { injected: f64::NAN, ..FirstBad::default() };
    let suspect = Suspect { over_tolerance: f64::INFINITY, ..Suspect::default() };
    let verdict = Report { first_bad: Some(bad), suspects: vec![suspect], ..Report::default() };
    let derivation = DerivationRow { term: "operand attn.in".into(), cost: 2.7e-2, ..DerivationRow::default() };
    let token = TokenRow { kl: 1e-9, ..TokenRow::default() };
    let flip = FlipRow { golden: -1, ..FlipRow::default() };
    let patch = PatchRow { added_flips: Some(-2), ..PatchRow::default() };
    Bundle {
        run,
        verdict,
        taps: vec![tap],
        derivations: vec![derivation],
        tokens: vec![token],
        flips: vec![flip],
        recall: vec![],
        patches: vec![patch],
        histories: vec![HistoryRow { largest: Some(f64::INFINITY), page: Some(3), ..HistoryRow::default() }],
    }
}

/// `NaN != NaN`: bundles are compared by what they print.
fn same(a: &Bundle, b: &Bundle) -> bool {
    format!("{:?}", (&a.verdict, &a.taps, &a.derivations, &a.tokens, &a.flips, &a.recall, &a.patches, &a.histories))
        == format!(
            "{:?}",
            (&b.verdict, &b.taps, &b.derivations, &b.tokens, &b.flips, &b.recall, &b.patches, &b.histories)
        )
}

#[test]
fn columns_change_only_with_the_schema_version() {
    // Columns are an interface. When this fails: raise SCHEMA_VERSION, note it in the changelog, then change the hash.
    assert_eq!(SCHEMA_VERSION, 4);
    assert_eq!(schema_hash(), "c371511c2c0297d70c67055de60246fa97dd9d522d37266c95425084da41f907");
}

#[test]
fn the_promised_columns_are_there_in_their_order() {
    fn names<R: Row>() -> Vec<&'static str> {
        R::COLUMNS.iter().map(|c| c.name).collect()
    }
    fn starts<R: Row>(promised: &str) {
        let promised: Vec<&str> = promised.split_whitespace().collect();
        assert_eq!(&names::<R>()[..promised.len()], promised, "{}", R::FILE);
    }
    starts::<TapRow>(
        "scenario sequence history pass phase patch_set backend layer op tap part n rel_l2 max_abs max_abs_position \
         row_p99_rel_l2 cosine gain residual calc_diff snr_db ulp_p99 sign_bias nonfinite saturated total inherited \
         injected cross amplification floor predicted tolerance ratio_to_predicted added_to_stock verdict",
    );
    starts::<TokenRow>(
        "scenario sequence position phase history kl js delta_logit_rms top1_golden top1_candidate margin_golden \
         expected_flip_probability top_k_overlap target_rank stratum",
    );
    starts::<FlipRow>(
        "scenario sequence history layer kind position golden candidate margin predicted_noise expected_probability",
    );
    starts::<RecallRow>(
        "scenario conversation variant history context_tokens depth length_phase margin_stratum expected \
         matched_golden matched_candidate answer_kl worst_margin_golden worst_margin_candidate amnesia symptom \
         lost_at_layer finish_reason gzip_ratio unique_word_ratio max_word_run max_line_repeat",
    );
    starts::<PatchRow>(
        "patch profile phases risk claimed_error measured_error calls_prefill calls_decode largest_prefill state \
         speedup added_kl added_flips recall_lost expected_verdict verdict",
    );
    starts::<HistoryRow>(
        "scenario sequence history against what compared differs gate value tolerance largest layer tensor pool page \
         page_row position element found expected owner_found owner_expected read_by minimal missing calls rows \
         rows_again rows_reused rows_decoded verdict",
    );
}

#[test]
fn a_bundle_reads_back_with_its_odd_numbers() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("out");
    let bundle = sample();
    write(&dir, &bundle).unwrap();
    let back = read(&dir).unwrap();
    assert!(same(&bundle, &back), "{back:#?}");
    assert!(back.run.wall_s.total.is_infinite());
    let text = fs::read_to_string(dir.join("verdict.json")).unwrap();
    assert!(text.contains("\"injected\": \"NaN\"") && text.contains("\"over_tolerance\": \"inf\""), "{text}");
    assert_eq!(fs::read_to_string(dir.join("recall.csv")).unwrap().lines().count(), 1, "a header only");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "no temporary folder is left");
}

#[test]
fn an_older_bundle_is_replaced_and_nothing_else_is() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("out");
    write(&dir, &sample()).unwrap();
    let mut second = sample();
    second.taps.clear();
    write(&dir, &second).unwrap();
    assert!(read(&dir).unwrap().taps.is_empty());
    let mine = place.path().join("mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("thesis.txt"), "years of work").unwrap();
    let error = write(&mine, &sample()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("exists and is not a bundle"), "{error}");
    assert!(mine.join("thesis.txt").exists());
    let file = place.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(write(&file, &sample()).unwrap_err().is_usage());
    let empty = place.path().join("empty");
    fs::create_dir(&empty).unwrap();
    write(&empty, &sample()).unwrap();
    read(&empty).unwrap();
}

/// Writes a bundle, breaks it, and gives the error of reading it.
fn broken(how: impl Fn(&Path)) -> String {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("out");
    write(&dir, &sample()).unwrap();
    how(&dir);
    let error = read(&dir).unwrap_err();
    assert!(!error.is_usage());
    error.to_string()
}

fn edit(dir: &Path, file: &str, change: impl Fn(&str) -> String) {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(&text)).unwrap();
}

#[test]
fn half_a_bundle_is_refused_with_a_reason() {
    let e = broken(|d| fs::remove_file(d.join("run.json")).unwrap());
    assert!(e.contains("no run.json"), "{e}");
    let e = broken(|d| fs::remove_file(d.join("flips.csv")).unwrap());
    assert!(e.contains("flips.csv") && e.contains("cannot be read"), "{e}");
    let e = broken(|d| fs::remove_file(d.join("verdict.json")).unwrap());
    assert!(e.contains("verdict.json"), "{e}");
    let e = broken(|d| edit(d, "taps.csv", |t| t.lines().next().unwrap().to_string() + "\n"));
    assert!(e.contains("1 rows, the file has 0"), "{e}");
    let e = broken(|d| edit(d, "taps.csv", |t| t[..t.len() - 40].to_string()));
    assert!(e.contains("taps.csv, line 2") && e.contains("cut short"), "{e}");
    let e = broken(|d| edit(d, "taps.csv", |t| t.replacen("rel_l2", "rell2", 1)));
    assert!(e.contains("line 1") && e.contains("expected `rel_l2`, found `rell2`"), "{e}");
    let e = broken(|d| edit(d, "taps.csv", |t| t.replacen("4096", "4o96", 1)));
    assert!(e.contains("column `n`: expected a count, found `4o96`"), "{e}");
    let e = broken(|d| edit(d, "taps.csv", |t| t.replacen("4096", "4097", 1)));
    assert!(e.contains("changed after it was written"), "{e}");
    let e = broken(|d| edit(d, "run.json", |t| t.replacen("karat-bundle/1", "karat-bundle/9", 1)));
    assert!(e.contains("expected karat-bundle/1"), "{e}");
    let e = broken(|d| edit(d, "verdict.json", |t| t[..t.len() / 2].to_string()));
    assert!(e.contains("not what karat writes"), "{e}");
    let e = broken(|d| fs::write(d.join("taps.csv"), "").unwrap());
    assert!(e.contains("the file is empty"), "{e}");
    let nowhere = read(Path::new("no/such/folder")).unwrap_err().to_string();
    assert!(nowhere.contains("no such folder"), "{nowhere}");
}

#[test]
fn an_unfinished_bundle_is_refused_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("out");
    write(&dir, &sample()).unwrap();
    let partial = place.path().join(".karat-partial-x");
    fs::rename(&dir, &partial).unwrap();
    assert!(read(&partial).unwrap_err().to_string().contains("not a complete bundle"));
}

proptest! {
    #[test]
    fn every_number_reads_back_bit_for_bit(bits: u64) {
        let value = f64::from_bits(bits);
        let row = TapRow { rel_l2: Some(value), ..TapRow::default() };
        let bytes = write::to_csv(&[row]).unwrap();
        let back: Vec<TapRow> = read_table(Path::new("taps.csv"), &bytes).unwrap();
        let got = back[0].rel_l2.unwrap();
        prop_assert!(got.to_bits() == bits || (got.is_nan() && value.is_nan()));
    }

    #[test]
    fn every_text_reads_back(text in "\\PC{0,40}|[\",\n\r ]{0,8}") {
        let row = FlipRow { scenario: text.clone(), sequence: text.clone(), ..FlipRow::default() };
        let bytes = write::to_csv(&[row]).unwrap();
        let back: Vec<FlipRow> = read_table(Path::new("flips.csv"), &bytes).unwrap();
        prop_assert_eq!(&back[0].scenario, &text);
    }

    #[test]
    fn a_table_reader_takes_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let whole = write::to_csv(&sample().patches).unwrap();
        let longer = [&whole[..], &bytes].concat();
        let rows = sample().patches.len();
        for table in [&bytes, &longer] {
            match read_table::<PatchRow>(Path::new("patches.csv"), table) {
                // What stands in the file is kept: rows are never lost in silence.
                Ok(read) => prop_assert!(table.len() == bytes.len() || read.len() >= rows),
                Err(error) => prop_assert!(error.to_string().contains("patches.csv"), "{error}"),
            }
        }
    }
}
