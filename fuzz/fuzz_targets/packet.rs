//! Frames that the lab caught on a cable: taken apart to the last byte, or found too short.
#![no_main]

use flannel_lab::packet::{Layer, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let Ok(layers) = decode(frame) else { return };
    let told: usize = layers.iter().map(Layer::size).sum();
    let ends_early = matches!(layers.last(), Some(Layer::Echo { .. }));
    assert!(told == frame.len() || ends_early, "{told} of {}: {layers:?}", frame.len());
});
