//! Agreement with the server on a version and on features, which a request needs to have, and on its length.

use farhaul_core::protocol::Session;

use super::{Client, To};
use crate::{
    agreed::{Agreed, OTHER_PATTERNS},
    error::TransferError,
    wire::{Exit, Features, MOST_PLACE_BYTES, MOST_PLACES, Message, Place, Symlinks},
};

impl Client {
    /// Makes the request one that the server understands; an error if it cannot be.
    pub(super) fn agree(&mut self, session: &dyn Session) -> Result<(), TransferError> {
        const SERVER: &str = "the server";
        let agreed = Agreed::with(session.peer_app(), SERVER)?;
        if let Message::Request {
            version, options, ..
        } = &mut self.request
        {
            *version = agreed.version;
            if options.pipe {
                agreed.needs(Features::PIPES, "it takes nothing from a pipe", SERVER)?;
            }
            if !agreed.features.has(Features::SYMLINKS) {
                if self.to.is_some()
                    && matches!(options.mirror.symlinks, Symlinks::Follow | Symlinks::Skip)
                {
                    let text = "it can neither follow nor skip symbolic links";
                    agreed.needs(Features::SYMLINKS, text, SERVER)?;
                }
                options.mirror.symlinks = Symlinks::Within;
            }
            if options.spec.is_ambiguous() {
                agreed.needs(Features::PATTERNS, OTHER_PATTERNS, SERVER)?;
            }
            if self.options.shard.is_some() {
                let text = "it does not put files together that several nodes send";
                agreed.needs(Features::STRIPES, text, SERVER)?;
            }
            let receives = matches!(self.to, Some((To::Pipe(_), _)));
            // Without it the server only does more than it need.
            options.pipe |= receives && agreed.features.has(Features::PIPES);
        }
        self.agreed = Some(agreed);
        Ok(())
    }
}

/// Reports why these places cannot be named by one request, if they cannot.
pub(super) fn check_places(places: &[Place]) -> Result<(), TransferError> {
    let Some(bytes) = Place::excess(places) else {
        return Ok(());
    };
    let text = format!(
        "{} sources with {bytes} bytes of names are more than one command can fetch, which is {MOST_PLACES} with {MOST_PLACE_BYTES} bytes",
        places.len(),
    );
    let fix = "name their folder, with --include, or copy in parts";
    Err(TransferError::new(Exit::Usage, text).fix(fix))
}
