//! Memory of programs that are short of time or of room.
//!
//! The CNI plugins live for a few milliseconds: a C library's allocator asks the kernel for pages and gives them back
//! again and again, which costs them more than what they do with the memory. So theirs is taken from one place, piece
//! after piece, and left to the kernel at the end: without the [`Arena`], an ADD of flannel takes 373 thousand
//! instructions in place of 258, and portmap's 405 in place of 271.
//!
//! The daemon needs a few megabytes for a moment, for a pass over thousands of peers. glibc keeps them for ever, once for
//! each thread, unless it is told otherwise.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Pieces begin and end at multiples of this, so that the last one that is given back leaves no gap.
const GRAIN: usize = 16;
/// What is larger comes from the system: pages that nobody touches cost nothing there, and go back at once.
const LARGEST: usize = 16 * 1024;

/// An allocator that hands out `ROOM` bytes in order, and the system's memory when they are used up.
///
/// Only the piece that was taken last can be given back, or grow where it is.
pub struct Arena<const ROOM: usize> {
    used: AtomicUsize,
    room: UnsafeCell<Room<ROOM>>,
}

#[repr(align(16))]
struct Room<const ROOM: usize>([u8; ROOM]);

#[allow(unsafe_code, reason = "threads share the room by the rule below, which the compiler cannot know")]
// SAFETY: nobody reads or writes `room` but those who were given a piece of it, and a piece is given to one only:
// it lies between two values of `used` that a single compare-and-exchange replaced by each other. What the one who
// gives a piece back did with it comes before all that the next one does: giving back releases, taking acquires.
unsafe impl<const ROOM: usize> Sync for Arena<ROOM> {}

impl<const ROOM: usize> Arena<ROOM> {
    /// An arena of which nothing is used.
    pub const fn unused() -> Self {
        Self { used: AtomicUsize::new(0), room: UnsafeCell::new(Room([0; ROOM])) }
    }

    fn start(&self) -> *mut u8 {
        self.room.get().cast()
    }

    /// Where a piece lies in the room, if it does.
    fn place(&self, piece: *mut u8) -> Option<usize> {
        Some(piece.addr().wrapping_sub(self.start().addr())).filter(|place| *place < ROOM)
    }

    /// Takes the next piece, if there is room for it.
    fn take(&self, layout: Layout) -> Option<usize> {
        if layout.size() > LARGEST {
            return None;
        }
        let start = self.start().addr();
        let place = |used: usize| (start + used).next_multiple_of(layout.align()) - start;
        let end = |used: usize| Some(end(place(used), layout.size())).filter(|end| *end <= ROOM);
        self.used.fetch_update(Acquire, Relaxed, end).ok().map(place)
    }

    /// Lets the piece at a place end elsewhere, if it is the last one and there is room.
    fn move_end(&self, place: usize, size: usize, new_size: usize) -> bool {
        let new_end = end(place, new_size);
        new_end <= ROOM && self.used.compare_exchange(end(place, size), new_end, AcqRel, Relaxed).is_ok()
    }
}

/// Where a piece ends. No piece is larger than the address space, so this does not overflow.
fn end(place: usize, size: usize) -> usize {
    place + size.next_multiple_of(GRAIN)
}

#[allow(unsafe_code, reason = "an allocator deals in pointers")]
// SAFETY: a piece of the room is as large and as aligned as its layout says, belongs to nobody else until it is
// given back, and does not move; everything else is the system's, which keeps the same promises.
unsafe impl<const ROOM: usize> GlobalAlloc for Arena<ROOM> {
    // Not inlined: a program has thousands of places that take memory.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout) {
            // SAFETY: `take` gives places whose whole piece is in the room.
            Some(place) => unsafe { self.start().add(place) },
            // SAFETY: the caller promises a layout that is not empty.
            None => unsafe { System.alloc(layout) },
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(place) = self.take(layout) else {
            // SAFETY: the caller promises a layout that is not empty.
            return unsafe { System.alloc_zeroed(layout) };
        };
        // SAFETY: the piece is in the room, ours alone, and as large as the layout says.
        unsafe {
            let piece = self.start().add(place);
            piece.write_bytes(0, layout.size()); // somebody may have had it before
            piece
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        match self.place(piece) {
            Some(place) => drop(self.move_end(place, layout.size(), 0)),
            // SAFETY: what does not lie in the room was taken from the system, with this layout.
            None => unsafe { System.dealloc(piece, layout) },
        }
    }

    #[inline(never)]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(place) = self.place(piece) else {
            // SAFETY: what does not lie in the room was taken from the system, with this layout.
            return unsafe { System.realloc(piece, layout, new_size) };
        };
        if self.move_end(place, layout.size(), new_size) || new_size <= layout.size() {
            return piece;
        }
        // SAFETY: the caller promises that the new size is valid for the alignment; the new piece is another one
        // than the old, which is smaller and not used after it is given back.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !new.is_null() {
                piece.copy_to_nonoverlapping(new, layout.size());
                self.dealloc(piece, layout);
            }
            new
        }
    }
}

#[allow(unsafe_code, reason = "the allocator has no safe way to be told")]
/// Tells the allocator to use one pool for all threads. To be called before any thread is started.
pub fn use_one_pool() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets a number in the allocator and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

#[allow(unsafe_code, reason = "the allocator has no safe way to be told")]
/// Gives what is free back to the kernel.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim touches only memory that nobody holds, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
