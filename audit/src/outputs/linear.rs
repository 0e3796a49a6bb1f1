//! The little linear algebra that is needed, in f64.

/// ⟨a,b⟩.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// ‖a‖.
pub(super) fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Solves `e = c ⊗ a + p ⊗ f + rest` for `a`, `f` `[D]` with the least rest, of `e` `[hc,D]`. Where c and p are parallel, all is f.
pub(super) fn split(e: &[f64], c: &[f64], p: &[f64]) -> [Vec<f64>; 3] {
    let d = e.len() / c.len().max(1);
    let (cc, cp, pp) = (dot(c, c), dot(c, p), dot(p, p));
    let det = cc * pp - cp * cp;
    let is_one = det <= 1e-9 * cc * pp;
    let (mut a, mut f, mut rest) = (vec![0.0; d], vec![0.0; d], e.to_vec());
    for i in 0..d {
        let (mut ce, mut pe) = (0.0, 0.0);
        for k in 0..c.len() {
            ce += c[k] * e[k * d + i];
            pe += p[k] * e[k * d + i];
        }
        (a[i], f[i]) = if is_one { (0.0, pe / pp) } else { ((pp * ce - cp * pe) / det, (cc * pe - cp * ce) / det) };
        for k in 0..c.len() {
            rest[k * d + i] -= c[k] * a[i] + p[k] * f[i];
        }
    }
    [a, f, rest]
}

/// An orthonormal basis of what these vectors span.
pub(super) fn basis(vectors: impl IntoIterator<Item = Vec<f64>>) -> Vec<Vec<f64>> {
    let mut out: Vec<Vec<f64>> = Vec::new();
    for mut v in vectors {
        let before = norm(&v);
        // Twice: what rounding left of the first time is as large as what is new, where little is new.
        (0..2).for_each(|_| remove(&mut v, &out));
        let after = norm(&v);
        if after > 1e-3 * before {
            v.iter_mut().for_each(|v| *v /= after);
            out.push(v);
        }
    }
    out
}

/// Takes out of a vector what lies in the span.
pub(super) fn remove(v: &mut [f64], basis: &[Vec<f64>]) {
    for b in basis {
        let along = dot(v, b);
        v.iter_mut().zip(b).for_each(|(v, b)| *v -= along * b);
    }
}

/// The inverse of a symmetric positive matrix `[n,n]`; `None` where it has none.
pub(super) fn inverse(a: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let n = a.len();
    let unit = |i: usize| (0..n).map(move |j| f64::from(u8::from(i == j)));
    let mut rows: Vec<Vec<f64>> =
        a.iter().enumerate().map(|(i, row)| row.iter().copied().chain(unit(i)).collect()).collect();
    let size = (0..n).map(|i| a[i][i]).fold(0.0, f64::max);
    for i in 0..n {
        let best = (i..n).max_by(|p, q| rows[*p][i].abs().total_cmp(&rows[*q][i].abs()))?;
        rows.swap(i, best);
        let pivot = rows[i][i];
        if pivot.is_nan() || pivot.abs() <= 1e-9 * size {
            return None;
        }
        rows[i].iter_mut().for_each(|v| *v /= pivot);
        for j in (0..n).filter(|j| *j != i) {
            let by = rows[j][i];
            let line = rows[i].clone();
            rows[j].iter_mut().zip(line).for_each(|(v, of)| *v -= by * of);
        }
    }
    Some(rows.into_iter().map(|row| row[n..].to_vec()).collect())
}
