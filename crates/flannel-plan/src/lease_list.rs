//! Leases in a file of ours, read one by one: a bad one is left out and named, the rest counts.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::finding::{Code, Finding};
use crate::lease::Lease;
use crate::quoted::quoted;

/// Leases that were read one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseList {
    pub leases: Vec<Arc<Lease>>,
    pub left_out: Vec<Finding>,
}

impl LeaseList {
    fn take(&mut self, raw: &RawValue) {
        match serde_json::from_str(raw.get()) {
            Ok(lease) => self.leases.push(Arc::new(lease)),
            Err(error) => {
                let (name, why) = (name(raw, self.count()), error.to_string());
                let finding = Finding::new(Code::LeaseUnreadable, &name, format!("{name} cannot be read"));
                self.left_out.push(finding.because(quoted(&why)));
            }
        }
    }

    fn count(&self) -> usize {
        self.leases.len() + self.left_out.len()
    }
}

/// Whose lease it is, if that much can be read.
fn name(raw: &RawValue, position: usize) -> String {
    #[derive(Deserialize)]
    struct Owned {
        owner: String,
    }
    match serde_json::from_str::<Owned>(raw.get()) {
        Ok(Owned { owner }) => format!("lease of {}", quoted(&owner)),
        Err(_) => format!("lease {} of the list", position + 1),
    }
}

impl<'de> Deserialize<'de> for LeaseList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneByOne;

        impl<'de> Visitor<'de> for OneByOne {
            type Value = LeaseList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of leases")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut raws: A) -> Result<LeaseList, A::Error> {
                let mut list = LeaseList::default();
                while let Some(raw) = raws.next_element::<Box<RawValue>>()? {
                    list.take(&raw);
                }
                Ok(list)
            }
        }
        deserializer.deserialize_seq(OneByOne)
    }
}

/// The leases of a list that can be read, for a place that has no room for the others' names.
pub(crate) fn readable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Lease>>, D::Error> {
    LeaseList::deserialize(deserializer).map(|list| list.leases)
}
