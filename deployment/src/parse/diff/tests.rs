use super::*;

const TWO: &str = "\
From: somebody
Subject: [PATCH] faster

---
 1 file changed

diff --git a/python/x.py b/python/x.py
index 1..2 100644
--- a/python/x.py
+++ b/python/x.py
@@ -10,4 +10,5 @@ class Layer:
     def hc_pre(self, x):
-        y = F.linear(x, fn)
+        y = F.linear(x.bfloat16(), fn.bfloat16())
+        # said
         return y

@@ -40 +41 @@ def other(a):
-    a
+    b
--\x20
2.40
";

#[test]
fn files_functions_and_changed_lines() {
    let hunks = read("p", TWO).unwrap();
    assert_eq!(hunks.len(), 2);
    assert_eq!((hunks[0].file.as_str(), hunks[0].line), ("python/x.py", 11));
    assert_eq!(hunks[0].scopes, ["Layer", "hc_pre"]);
    let marks: String = hunks[0].changed.iter().map(|(_, mark, _)| *mark).collect();
    assert_eq!((marks.as_str(), hunks[0].changed[0].0), ("-++", 13));
    assert_eq!((hunks[1].scopes.as_slice(), hunks[1].changed.len()), (&["other".to_owned()][..], 2));
}

#[test]
fn what_is_cut_or_no_diff_names_its_line() {
    let upto = |n: usize| TWO.lines().take(n).collect::<Vec<_>>().join("\n");
    let cases = [
        (upto(14), "p:15", "the end of the file"),
        (upto(10), "p:10", "without a hunk"),
        ("import os\nprint(1)\n".to_owned(), "p:2", "no hunk"),
        (TWO.replace("@@ -40 +41 @@", "@@ -40 @@"), "p:18", "another head"),
        (TWO.replace("     def", "xx   def"), "p:12", "none of the hunk's"),
        (TWO.replace("+++ b/python/x.py\n", ""), "p:10", "another line"),
        (TWO.replace("@@ -10,4 +10,5 @@", "@@@ -1,1 -1,1 +1,1 @@@"), "p:11", "combined"),
        ("@@ -1 +1 @@\n-a\n+b\n".to_owned(), "p:1", "a hunk"),
        ("--- x\n+++ y\n@@ -1 +1 @@\n-a\n+b\n+c\n".to_owned(), "p:6", "one more"),
        ("--- x\n+++ y\n--- z\n+++ w\n@@ -1 +1 @@\n-a\n+b\n".to_owned(), "p:2", "without a hunk"),
        ("--- x\n+++ y\n@@ -1,99999999999999999999 +1 @@\n".to_owned(), "p:3", "another head"),
    ];
    for (text, place, found) in cases {
        let error = read("p", &text).expect_err(&text);
        assert!(error.place == place && error.to_string().contains(found), "{error} for\n{text}");
    }
}

#[test]
fn files_without_text_are_still_named() {
    let text = "diff --git a/k.cubin b/k.cubin\nindex 1..2\nBinary files a/k.cubin and b/k.cubin differ\n";
    let hunks = read("p", text).unwrap();
    assert_eq!((hunks[0].file.as_str(), hunks[0].without_text), ("k.cubin", Some("binary")));
    let gone = "--- a/old.py\t2026-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    assert_eq!(read("p", gone).unwrap()[0].file, "old.py");
}

#[test]
fn a_hunk_is_in_the_functions_of_its_changed_lines_alone() {
    let scopes = |head: &str, body: &[&str]| {
        let old = body.iter().filter(|l| !l.starts_with('+')).count();
        let new = body.iter().filter(|l| !l.starts_with('-')).count();
        let text = format!("--- a/x.py\n+++ b/x.py\n@@ -1,{old} +1,{new} @@ {head}\n{}\n", body.join("\n"));
        read("p", &text).unwrap()[0].scopes.join(" ")
    };
    assert_eq!(
        scopes("class Layer:", &["     def a(self):", "+        x", "     def b(self):", "         y"]),
        "Layer a"
    );
    assert_eq!(scopes("def a(self):", &["         x", "     def b(self):", "+        y"]), "b");
    assert_eq!(scopes("def a(self):", &["         def inner(x):", "+            y"]), "a inner");
    assert_eq!(scopes("def a(x):", &["+    y", " def b(x):", "     z"]), "a");
    assert_eq!(scopes("", &[" def b(x):", "     z", "+top = 1"]), "");
}
