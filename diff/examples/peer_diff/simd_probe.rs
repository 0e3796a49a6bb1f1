//! What the processor can do at most: multiply-adds in registers, and reading memory. Nothing of the program is in it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_reduce_add_ps, _mm512_set1_ps, _mm512_setzero_ps,
};

use karat_diff::Isa;

/// Chains of multiply-adds that run side by side: more than latency times units of any processor.
#[cfg(target_arch = "x86_64")]
const CHAINS: usize = 24;

/// The vector instructions that both probes use: those that the passes use.
pub(crate) fn isa() -> &'static str {
    match Isa::used() {
        Isa::Avx512 => "AVX-512",
        Isa::Avx2 => "AVX2",
        Isa::Plain => "none",
    }
}

/// Runs so many steps of every chain on this thread; gives the floating-point operations done.
pub(crate) fn fma(steps: u64) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        match isa() {
            // SAFETY: the machine has the features that the function is compiled with.
            "AVX-512" => return unsafe { fma_512(steps) },
            // SAFETY: as above.
            "AVX2" => return unsafe { fma_256(steps) },
            _ => {}
        }
    }
    let mut x = [1.0f32; 16];
    for _ in 0..steps {
        for v in &mut x {
            *v = v.mul_add(0.999_999, 1e-6);
        }
    }
    std::hint::black_box(x);
    steps as f64 * 32.0
}

/// Sum of values, as fast as they can be read.
pub(crate) fn sum(values: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        match isa() {
            // SAFETY: the machine has the features that the function is compiled with.
            "AVX-512" => return unsafe { sum_512(values) },
            // SAFETY: as above.
            "AVX2" => return unsafe { sum_256(values) },
            _ => {}
        }
    }
    values.iter().sum()
}

/// The same for 32-bit numbers of any alignment.
pub(crate) fn sum_bytes(values: &[[u8; 4]]) -> f32 {
    // SAFETY: any four bytes are an f32, and the loads below ask for no alignment; the middle part is aligned anyway.
    let (before, middle, after) = unsafe { values.as_flattened().align_to::<f32>() };
    std::hint::black_box((before, after));
    sum(middle)
}

/// # Safety
/// The processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn fma_512(steps: u64) -> f64 {
    let (a, b) = (_mm512_set1_ps(std::hint::black_box(0.999_999)), _mm512_set1_ps(std::hint::black_box(1e-6)));
    let mut chains = [_mm512_set1_ps(1.0); CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            *chain = _mm512_fmadd_ps(*chain, a, b);
        }
    }
    let mut all = chains[0];
    for chain in &chains[1..] {
        all = _mm512_add_ps(all, *chain);
    }
    std::hint::black_box(_mm512_reduce_add_ps(all));
    steps as f64 * (CHAINS * 16 * 2) as f64
}

/// # Safety
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn fma_256(steps: u64) -> f64 {
    // Of sixteen registers, two hold the factors: twelve chains leave none in memory.
    const FEW: usize = CHAINS / 2;
    let (a, b) = (_mm256_set1_ps(std::hint::black_box(0.999_999)), _mm256_set1_ps(std::hint::black_box(1e-6)));
    let mut chains = [_mm256_set1_ps(1.0); FEW];
    for _ in 0..steps {
        for chain in &mut chains {
            *chain = _mm256_fmadd_ps(*chain, a, b);
        }
    }
    let mut all = chains[0];
    for chain in &chains[1..] {
        all = _mm256_add_ps(all, *chain);
    }
    std::hint::black_box(all);
    steps as f64 * (FEW * 8 * 2) as f64
}

/// # Safety
/// The processor has AVX-512F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn sum_512(values: &[f32]) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 8];
    let (blocks, rest) = values.as_chunks::<128>();
    for block in blocks {
        for (lane, sum) in block.as_chunks::<16>().0.iter().zip(&mut sums) {
            // SAFETY: `lane` is sixteen values.
            *sum = _mm512_add_ps(*sum, unsafe { _mm512_loadu_ps(lane.as_ptr()) });
        }
    }
    let mut all = sums[0];
    for sum in &sums[1..] {
        all = _mm512_add_ps(all, *sum);
    }
    _mm512_reduce_add_ps(all) + rest.iter().sum::<f32>()
}

/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sum_256(values: &[f32]) -> f32 {
    let mut sums = [_mm256_setzero_ps(); 8];
    let (blocks, rest) = values.as_chunks::<64>();
    for block in blocks {
        for (lane, sum) in block.as_chunks::<8>().0.iter().zip(&mut sums) {
            // SAFETY: `lane` is eight values.
            *sum = _mm256_add_ps(*sum, unsafe { _mm256_loadu_ps(lane.as_ptr()) });
        }
    }
    let mut all = sums[0];
    for sum in &sums[1..] {
        all = _mm256_add_ps(all, *sum);
    }
    let mut lanes = [0f32; 8];
    // SAFETY: `lanes` holds eight values.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), all) };
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}
