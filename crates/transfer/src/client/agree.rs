//! Agreement with the server on a version and on features, which a request needs to have.

use farhaul_core::protocol::Session;

use super::{Client, To};
use crate::{
    error::TransferError,
    message::Message,
    mirror::Symlinks,
    version::{Agreed, Features, OTHER_PATTERNS},
};

impl Client {
    /// Makes the request one that the server understands; an error if it cannot be.
    pub(super) fn agree(&mut self, session: &dyn Session) -> Result<(), TransferError> {
        const SERVER: &str = "the server";
        let agreed = Agreed::with(session.peer_app(), SERVER)?;
        if let Message::Request { version, ask, .. } = &mut self.request {
            *version = agreed.version;
            if ask.pipe {
                agreed.needs(Features::PIPES, "it takes nothing from a pipe", SERVER)?;
            }
            if !agreed.features.has(Features::SYMLINKS) {
                if self.to.is_some()
                    && matches!(ask.mirror.symlinks, Symlinks::Follow | Symlinks::Skip)
                {
                    let text = "it can neither follow nor skip symbolic links";
                    agreed.needs(Features::SYMLINKS, text, SERVER)?;
                }
                ask.mirror.symlinks = Symlinks::Within;
            }
            if ask.spec.is_ambiguous() {
                agreed.needs(Features::PATTERNS, OTHER_PATTERNS, SERVER)?;
            }
            if self.options.shard.is_some() {
                let text = "it does not put files together that several nodes send";
                agreed.needs(Features::STRIPES, text, SERVER)?;
            }
            let receives = matches!(self.to, Some((To::Pipe(_), _)));
            // Without it the server only does more than it need.
            ask.pipe |= receives && agreed.features.has(Features::PIPES);
        }
        self.agreed = Some(agreed);
        Ok(())
    }
}
