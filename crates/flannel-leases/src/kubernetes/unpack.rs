//! The body of a list, unpacked while it arrives: gzip makes a tenth of it. Takes what the network brings, gives parts
//! of the list, none of them large.

use std::io::Write;

use flate2::write::GzDecoder;
use hyper::body::{Bytes, Incoming};

use super::client::Client;
use super::error::KubernetesError;

/// So much is unpacked at a time: a thousand times as much may come of it.
const PIECE: usize = 1 << 10;
/// A hundred thousand nodes of 12 KB; more is not what we take it for.
const LARGEST: u64 = 1200 << 20;

/// The body of a list.
pub(super) struct Unpacked {
    body: Incoming,
    /// What has arrived and is still packed.
    packed: Bytes,
    /// What unpacks it; none if it is not packed.
    gzip: Option<GzDecoder<Vec<u8>>>,
    given: u64,
}

impl Unpacked {
    pub(super) fn plain(body: Incoming) -> Self {
        Self { body, packed: Bytes::new(), gzip: None, given: 0 }
    }

    pub(super) fn gzip(body: Incoming) -> Self {
        Self { gzip: Some(GzDecoder::new(Vec::new())), ..Self::plain(body) }
    }

    /// The next part; none at its end.
    pub(super) async fn part(
        &mut self,
        client: &Client,
        act: &str,
    ) -> Result<Option<Bytes>, KubernetesError> {
        let arrived = if self.packed.is_empty() { client.part(act, &mut self.body).await? } else { None };
        let part = match &mut self.gzip {
            None => arrived,
            Some(gzip) => {
                let is_over = arrived.is_none() && self.packed.is_empty();
                self.packed = arrived.unwrap_or_else(|| std::mem::take(&mut self.packed));
                let piece = self.packed.split_to(PIECE.min(self.packed.len()));
                // At the end a sum is compared: a list that was cut short is an error here.
                let unpacked = if is_over { gzip.try_finish() } else { gzip.write_all(&piece) };
                unpacked.map_err(|cause| client.garbled(act, &format!("it is no gzip: {cause}")))?;
                let part = std::mem::take(gzip.get_mut());
                self.gzip.take_if(|_| is_over);
                Some(part.into())
            }
        };
        self.given += part.as_ref().map_or(0, |part| part.len() as u64);
        if self.given > LARGEST { Err(client.garbled(act, "it has no end")) } else { Ok(part) }
    }
}
