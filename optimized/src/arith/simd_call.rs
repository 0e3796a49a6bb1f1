//! Plain loops compiled for AVX2 and FMA where the machine has them.

/// Defines a function whose body is compiled twice, for the target and for AVX2 with FMA, and chosen at run time. Both
/// give the same bits: the compiler never reorders floating-point sums, and `mul_add` is one rounding in both. What the
/// body calls in a loop must be `#[inline(always)]`, and must not be a closure.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $out)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $out)? {
                    body($($arg),*)
                }
                if $crate::arith::has_simd() {
                    // SAFETY: AVX2 and FMA were detected.
                    return unsafe { avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use vectorised;
