//! The pair of tensors that is compared: about normal, the second a part in a thousand off the first.

use std::path::{Path, PathBuf};

use karat_diff::{Code, Values, View};

use super::Result;

/// Columns of the pair.
const WIDTH: usize = 1024;

/// Two tensors of so many MiB each.
pub(crate) struct Pair {
    mib: usize,
    code: Code,
    shape: [usize; 2],
    sides: [Side; 2],
}

enum Side {
    F32(Vec<f32>),
    Bytes(Vec<u8>),
}

impl Pair {
    pub(crate) fn make(mib: usize, code: Code) -> Self {
        let n = (mib << 20) / code.size();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u32 << 24) as f32
        };
        // A sum of four uniform values is near enough to normal here: only the spread of magnitudes matters.
        let mut normal = || (uniform() + uniform() + uniform() + uniform() - 2.0) * 1.732;
        let x: Vec<f32> = (0..n).map(|_| normal()).collect();
        let y: Vec<f32> = x.iter().map(|v| v + 1e-3 * normal()).collect();
        let side = |v: Vec<f32>| match code {
            Code::Bf16 => {
                Side::Bytes(v.iter().flat_map(|v| half::bf16::from_f32(*v).to_bits().to_le_bytes()).collect())
            }
            Code::E4m3 => Side::Bytes(v.iter().map(|v| float8::F8E4M3::from_f32(*v).to_bits()).collect()),
            _ => Side::F32(v),
        };
        Self { mib, code, shape: [n / WIDTH, WIDTH], sides: [side(x), side(y)] }
    }

    pub(crate) fn is(&self, mib: usize, code: Code) -> bool {
        (self.mib, self.code) == (mib, code)
    }

    pub(crate) fn views(&self) -> Result<(View<'_>, View<'_>)> {
        Ok((self.view(&self.sides[0])?, self.view(&self.sides[1])?))
    }

    fn view<'a>(&'a self, side: &'a Side) -> Result<View<'a>> {
        match side {
            Side::F32(v) => Ok(View { shape: &self.shape, values: Values::F32(v) }),
            Side::Bytes(b) => Ok(View::stored("pair", &self.shape, self.code, b)?),
        }
    }

    /// The values for reading alone: 32-bit numbers in memory have no bytes of their own here.
    pub(crate) fn floats(&self) -> Option<[&[f32]; 2]> {
        match &self.sides {
            [Side::F32(x), Side::F32(y)] => Some([x, y]),
            _ => None,
        }
    }

    /// Writes both as safetensors files, unless they are there.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let dtype = match self.code {
            Code::Bf16 => "BF16",
            Code::E4m3 => "F8_E4M3",
            _ => "F32",
        };
        let size = self.mib << 20;
        let mut header = format!(
            r#"{{"t":{{"dtype":"{dtype}","shape":[{},{}],"data_offsets":[0,{size}]}}}}"#,
            self.shape[0], self.shape[1]
        );
        // Data begins at a multiple of 8.
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        for (side, name) in self.sides.iter().zip(["a", "b"]) {
            let path = path(folder, name);
            let start = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            let there = std::fs::metadata(&path).is_ok_and(|m| m.len() == (start.len() + size) as u64);
            let head = |path| -> std::io::Result<Vec<u8>> {
                use std::io::Read as _;
                let mut found = vec![0; start.len()];
                std::fs::File::open(path)?.read_exact(&mut found)?;
                Ok(found)
            };
            if there && head(&path)? == start {
                continue;
            }
            let mut all = start;
            match side {
                Side::F32(v) => v.iter().for_each(|v| all.extend_from_slice(&v.to_le_bytes())),
                Side::Bytes(b) => all.extend_from_slice(b),
            }
            std::fs::write(path, all)?;
        }
        Ok(())
    }
}

/// File of one side.
pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("peer_diff_{name}.safetensors"))
}
