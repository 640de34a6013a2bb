#![allow(unsafe_code, reason = "an allocator is called by pointers")]

use super::*;

const ROOM: usize = 4096;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

fn take(arena: &Arena<ROOM>, layout: Layout) -> *mut u8 {
    // SAFETY: no layout of these tests is empty.
    let piece = unsafe { arena.alloc(layout) };
    assert!(!piece.is_null());
    piece
}

fn give_back(arena: &Arena<ROOM>, piece: *mut u8, layout: Layout) {
    // SAFETY: the tests give back what they took, once, with its layout.
    unsafe { arena.dealloc(piece, layout) };
}

#[test]
fn pieces_given_back_in_the_reverse_order_are_given_again() {
    let arena = Arena::<ROOM>::unused();
    let (small, large) = (layout(3, 1), layout(100, 8));
    let (first, second) = (take(&arena, small), take(&arena, large));
    assert_ne!(first, second);
    give_back(&arena, second, large);
    give_back(&arena, first, small);
    assert_eq!((take(&arena, small), take(&arena, large)), (first, second));
}

#[test]
fn a_piece_in_the_middle_stays_taken() {
    let arena = Arena::<ROOM>::unused();
    let (first, second) = (take(&arena, layout(16, 1)), take(&arena, layout(16, 1)));
    give_back(&arena, first, layout(16, 1));
    let third = take(&arena, layout(16, 1));
    assert_eq!([second.addr(), third.addr()], [first.addr() + 16, first.addr() + 32]);
}

#[test]
fn the_last_piece_grows_where_it_is_and_others_move_with_their_content() {
    let arena = Arena::<ROOM>::unused();
    let piece = take(&arena, layout(8, 1));
    // SAFETY: each piece is used only while it is taken, with the layout that it has at that time.
    unsafe {
        piece.copy_from_nonoverlapping(b"flannel!".as_ptr(), 8);
        assert_eq!(arena.realloc(piece, layout(8, 1), 40), piece);
        take(&arena, layout(1, 1));
        let moved = arena.realloc(piece, layout(40, 1), 50);
        assert_ne!(moved, piece);
        assert_eq!(std::slice::from_raw_parts(moved, 8), b"flannel!");
    }
}

#[test]
fn what_does_not_fit_comes_from_the_system_and_goes_back_to_it() {
    let arena = Arena::<ROOM>::unused();
    let all = layout(ROOM, 1);
    let room = take(&arena, all);
    assert_eq!(arena.place(room), Some(0));
    let foreign = take(&arena, layout(1, 1));
    assert_eq!(arena.place(foreign), None);
    give_back(&arena, foreign, layout(1, 1));
    give_back(&arena, room, all);
    assert_eq!(take(&arena, all), room);
}

#[test]
fn the_full_arena_lets_a_piece_grow_out_of_it() {
    let arena = Arena::<ROOM>::unused();
    let piece = take(&arena, layout(ROOM, 1));
    // SAFETY: the piece is as large as it was taken, and what it became is given back as large as it is then.
    unsafe {
        piece.write_bytes(7, ROOM);
        let grown = arena.realloc(piece, layout(ROOM, 1), 2 * ROOM);
        assert_eq!(arena.place(grown), None);
        assert_eq!(std::slice::from_raw_parts(grown, ROOM), [7; ROOM]);
        arena.dealloc(grown, layout(2 * ROOM, 1));
    }
    assert_eq!(take(&arena, layout(ROOM, 1)), piece);
}

#[test]
fn memory_that_is_wanted_clean_is_clean_although_it_was_used_before() {
    let arena = Arena::<ROOM>::unused();
    let piece = take(&arena, layout(64, 1));
    // SAFETY: the piece has 64 bytes, before and after.
    unsafe {
        piece.write_bytes(7, 64);
        give_back(&arena, piece, layout(64, 1));
        let clean = arena.alloc_zeroed(layout(64, 1));
        assert_eq!(clean, piece);
        assert_eq!(std::slice::from_raw_parts(clean, 64), [0; 64]);
    }
}

#[test]
fn every_alignment_is_kept() {
    let arena = Arena::<ROOM>::unused();
    for align in [1, 2, 8, 16, 64, 512] {
        let piece = take(&arena, layout(1, align));
        assert_eq!((piece.addr() % align, arena.place(piece).is_some()), (0, true));
    }
}

// What a processor of another make may see of it is for Miri to say: `cargo +nightly miri test -p flannel-kernel
// --lib arena` takes a hand-over without an order for a data race.
#[test]
fn two_threads_never_hold_the_same_memory() {
    let arena = Arena::<ROOM>::unused();
    std::thread::scope(|scope| {
        for mark in [1, 2] {
            let arena = &arena;
            scope.spawn(move || {
                for size in (1..200).cycle().take(if cfg!(miri) { 200 } else { 20_000 }) {
                    let piece = take(arena, layout(size, 1));
                    // SAFETY: the piece has `size` bytes until it is given back.
                    unsafe {
                        piece.write_bytes(mark, size);
                        assert!(std::slice::from_raw_parts(piece, size).iter().all(|byte| *byte == mark));
                    }
                    give_back(arena, piece, layout(size, 1));
                }
            });
        }
    });
}
