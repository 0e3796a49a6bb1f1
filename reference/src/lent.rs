//! Memory that the tasks of parallel loops work with. Each thread keeps what its last task left: tasks that allocate meet in the
//! allocator, and leave memory behind in as many of its arenas as there are threads.

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// At most one of each kind.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Buffers of this thread, with whatever an earlier task left in them; it has them again when this is dropped.
pub(crate) struct Lent<B: Default + 'static>(Option<Box<B>>);

impl<B: Default + 'static> Lent<B> {
    /// Those that are kept, or new ones.
    pub(crate) fn take() -> Self {
        let kept = KEPT.with_borrow_mut(|kept| {
            let at = kept.iter().position(|buffers| buffers.is::<B>())?;
            kept.swap_remove(at).downcast().ok()
        });
        Self(Some(kept.unwrap_or_default()))
    }
}

impl<B: Default + 'static> Deref for Lent<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.0.as_ref().expect("buffers are there until they are dropped")
    }
}

impl<B: Default + 'static> DerefMut for Lent<B> {
    fn deref_mut(&mut self) -> &mut B {
        self.0.as_mut().expect("buffers are there until they are dropped")
    }
}

impl<B: Default + 'static> Drop for Lent<B> {
    fn drop(&mut self) {
        let Some(buffers) = self.0.take() else { return };
        // A thread that ends keeps nothing.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if !kept.iter().any(|other| other.is::<B>()) {
                kept.push(buffers);
            }
        });
    }
}

/// The memory of a list of rows. Nothing is in it between two uses, since the rows live less long.
pub(crate) type List<T> = Vec<&'static [T]>;

/// Runs `f` with an empty list of rows in this memory.
pub(crate) fn listed<'a, T, R>(memory: &mut List<T>, f: impl FnOnce(&mut Vec<&'a [T]>) -> R) -> R {
    let mut list = emptied(std::mem::take(memory));
    let done = f(&mut list);
    *memory = emptied(list);
    done
}

/// The same list without its rows. The standard library collects into the memory of the list that it goes through.
fn emptied<'b, T>(mut list: Vec<&[T]>) -> Vec<&'b [T]> {
    list.clear();
    list.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_buffers_again() {
        let mut first = Lent::<Vec<u64>>::take();
        first.reserve_exact(1000);
        let at = first.as_ptr();
        // Another kind, and a second of the same: it is new.
        let (_other, second) = (Lent::<Vec<u8>>::take(), Lent::<Vec<u64>>::take());
        assert_eq!(second.capacity(), 0);
        drop(first);
        drop(second);
        assert_eq!(Lent::<Vec<u64>>::take().as_ptr(), at);
        std::thread::spawn(|| assert_eq!(Lent::<Vec<u64>>::take().capacity(), 0)).join().unwrap();
    }

    #[test]
    fn a_list_stays_where_it_is() {
        let (mut memory, values) = (List::<f32>::with_capacity(10), vec![1.0; 4]);
        let at = memory.as_ptr().addr();
        for rows in [2, 4] {
            listed(&mut memory, |list| {
                assert!(list.is_empty());
                list.extend(values.chunks_exact(4 / rows));
                assert_eq!((list.len(), list.as_ptr().addr()), (rows, at));
            });
        }
        assert_eq!((memory.len(), memory.capacity(), memory.as_ptr().addr()), (0, 10, at));
    }
}
