//! Files: manifest, reader, writer, resume journal, digest, progress.
