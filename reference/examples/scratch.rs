use karat_reference::linalg::{Weight, ceiling};
use std::time::Instant;
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|s| s.parse().unwrap()).collect();
    let (m, n, k, t) = (a[0], a[1], a[2], a[3]);
    let w: Vec<f32> = (0..n * k).map(|i| ((i * 7919) % 1000) as f32 * 1e-3 - 0.5).collect();
    let x: Vec<f32> = (0..m * k).map(|i| ((i * 104729) % 1000) as f32 * 1e-3 - 0.5).collect();
    let w = Weight::new(n, k, &w, t).unwrap();
    let mut out = vec![0f32; m * n];
    w.multiply(&x, &mut out);
    for _ in 0..4 {
        let c = ceiling(t).unwrap();
        let s = Instant::now();
        let mut r = 0;
        while s.elapsed().as_secs_f64() < 0.4 { w.multiply(&x, &mut out); r += 1; }
        let g = 2.0 * (m * n * k * r) as f64 / s.elapsed().as_secs_f64() / 1e9;
        println!("peak {c:.0} gemm {g:.0} share {:.3}", g / c);
    }
}
