//! Machines, and the rates that were measured of them or are assumed.

/// A number with where it comes from.
#[derive(Clone, Copy)]
pub(super) struct Rate {
    pub(super) value: f64,
    pub(super) from: &'static str,
}

/// Something to run an audit on.
pub(super) struct Machine {
    pub(super) name: &'static str,
    /// FLOP a second of a forward pass.
    pub(super) flop: Rate,
    /// Bytes of weights a second.
    pub(super) load: Rate,
    /// Bytes of tensors compared a second, both sides counted.
    pub(super) compare: Rate,
    /// Bytes of memory for tensors.
    pub(super) memory: f64,
    /// True where the whole checkpoint stays in memory and is read once.
    pub(super) is_resident: bool,
    /// What stands between this row and a run.
    pub(super) but: &'static str,
}

/// Golden's products on one core, FLOP a second.
const CORE: f64 = 264e9 / 2.0;

pub(super) const MACHINES: [Machine; 3] = [
    Machine {
        name: "a 64-core CPU, 512 GiB",
        flop: Rate {
            value: 64.0 * CORE,
            from: "264 GFLOP/s on 2 cores (golden's products, 512 x 2048 x 4096, AVX-512: docs/performance), times 32: assumed",
        },
        load: Rate { value: 7e9, from: "7 GB/s of NVMe: assumed" },
        compare: Rate {
            value: 32.0 * 5.6e9,
            from: "5.6 GB/s on 2 cores (full set, f32 in memory: docs/performance), times 32: assumed",
        },
        memory: 512.0 * GIB,
        is_resident: false,
        but: "runs as it is",
    },
    Machine {
        name: "1 H200",
        flop: Rate {
            value: 126e12,
            from: "126 TFLOP/s (exact-split GEMM, M = 4096: docs/kernels.md), for all products: assumed",
        },
        load: Rate { value: 50e9, from: "50 GB/s from the host: assumed" },
        compare: Rate { value: 1.95e12, from: "half of a copy's 3.9 TB/s (docs/kernels.md): assumed" },
        memory: 139.0 * GIB,
        is_resident: false,
        but: "candidates compute on the CPU but for patches that are kernels: what the measured kernels would allow",
    },
    Machine {
        name: "8 RTX PRO 6000",
        flop: Rate { value: 8.0 * 54e12, from: "8 times 54 TFLOP/s (f32 GEMM as others measured it): assumed" },
        load: Rate { value: 8.0 * 50e9, from: "8 times 50 GB/s from the host: assumed" },
        compare: Rate { value: 8.0 * 0.9e12, from: "8 times half of 1.8 TB/s: assumed" },
        memory: 8.0 * 96.0 * GIB,
        is_resident: true,
        but: "no kernel of karat has run on sm_120: assumptions alone",
    },
];

pub(super) const GIB: f64 = (1_u64 << 30) as f64;
