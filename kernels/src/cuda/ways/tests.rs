//! The ways with copies that are late: what travels arrives when somebody waits for it, and not before.

use super::*;

/// Copies memory of this process, at the last moment.
#[derive(Debug)]
struct Late {
    buffers: [Vec<u8>; 2],
    /// Bytes, address, and whether they go there.
    coming: [Option<(usize, u64, bool)>; 2],
}

impl Late {
    fn new() -> Self {
        Self { buffers: [vec![0; CHUNK], vec![0; CHUNK]], coming: [None; 2] }
    }
}

impl Way for Late {
    fn buffer(&mut self, i: usize) -> &mut [u8] {
        assert!(self.coming[i].is_none(), "it still travels");
        &mut self.buffers[i]
    }

    unsafe fn send(&mut self, i: usize, bytes: usize, to: u64) -> Result<()> {
        assert!(self.coming[i].replace((bytes, to, true)).is_none(), "two copies of one buffer");
        Ok(())
    }

    unsafe fn fetch(&mut self, i: usize, bytes: usize, from: u64) -> Result<()> {
        assert!(self.coming[i].replace((bytes, from, false)).is_none(), "two copies of one buffer");
        Ok(())
    }

    fn wait(&mut self, i: usize) -> Result<()> {
        if let Some((bytes, at, there)) = self.coming[i].take() {
            let buffer = self.buffers[i].as_mut_ptr();
            // SAFETY: the test gives addresses of memory that is as long as it says.
            unsafe {
                if there {
                    std::ptr::copy_nonoverlapping(buffer, at as *mut u8, bytes);
                } else {
                    std::ptr::copy_nonoverlapping(at as *const u8, buffer, bytes);
                }
            }
        }
        Ok(())
    }
}

#[test]
fn copies_of_any_length_arrive_whole_and_in_order() {
    for count in [1, 3] {
        let mut ways: Vec<Late> = (0..count).map(|_| Late::new()).collect();
        for n in [1, 4096, SHARE + 1, CHUNK, 2 * CHUNK, 3 * CHUNK + 5, 9 * CHUNK + 4097] {
            let from: Vec<u8> = (0..n).map(|i| (i * 31 + i / 4096) as u8).collect();
            let (mut there, mut back) = (vec![0u8; n], vec![0u8; n]);
            // SAFETY: both memories have n bytes.
            unsafe {
                send(&mut ways, &from, there.as_mut_ptr() as u64).unwrap();
                fetch(&mut ways, there.as_ptr() as u64, &mut back).unwrap();
            }
            assert!(there == from && back == from, "{n} bytes on {count} ways");
            assert!(ways.iter().all(|way| way.coming == [None; 2]), "something still travels");
        }
    }
}
