//! The first tokens: an operator's for whoever installed the platform, and one each for cell and gateway beside this manager.
//!
//! A token file that is there already and holds a well-formed token is believed: its hash is put into the store. So a
//! token may be handed to several managers by whatever brings out their files. Once there is an operator, what a file
//! holds is left alone, so that a token that was removed does not come back; but a file that is gone is made anew with
//! another token, so that whoever owns the data directory is not locked out for good.

use super::auth;
use crate::core::{Core, keys};
use crate::error::CommitError;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use towpath_store::{Expect, StoreError, Write};
use towpath_types::spec::{Role, TokenSpec};
use towpath_types::{Digest, Kind};

/// Why the first tokens could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FirstTokenError {
    /// The file.
    #[error("the token file {} cannot be used", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The store.
    #[error("the token could not be stored")]
    Commit(#[from] CommitError),
}

/// Makes what is missing. Called once this manager is a member and its cache is loaded.
pub(crate) async fn ensure(core: &Core) -> Result<(), FirstTokenError> {
    let settings = &core.settings;
    if let Some(path) = &settings.first_token_file {
        // Under a name of its own: another manager may still use the token `first`.
        let name = format!("first-{}", core.manager.short());
        if !has_role(core, Role::Operator) {
            // Of several that start at once one gets the name, and the file of each is good.
            if !ensure_file(core, path, "first", Role::Operator, Expect::Absent).await? {
                core.catch_up().await;
                ensure_file(core, path, &name, Role::Operator, Expect::Any).await?;
            }
        } else if is_missing(path) {
            tracing::warn!(file = %path.display(), name, "the operator's token file is gone; earlier tokens stay valid");
            ensure_file(core, path, &name, Role::Operator, Expect::Any).await?;
        }
    }
    // Each manager has names of its own for these, so that they do not replace each other's.
    let others = [
        (&settings.cell_token_file, "cell", Role::Cell),
        (&settings.gateway_token_file, "gateway", Role::Gateway),
    ];
    for (path, word, role) in others {
        if let Some(path) = path {
            ensure_file(core, path, &format!("{word}-{}", core.manager.short()), role, Expect::Any).await?;
        }
    }
    Ok(())
}

/// Whether there is no file, or an empty one.
fn is_missing(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.len() == 0,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn has_role(core: &Core, role: Role) -> bool {
    core.cache
        .list(Kind::Token, None, None)
        .iter()
        .any(|record| record.spec::<TokenSpec>().is_ok_and(|spec| spec.role == role))
}

/// Makes file and store agree on one token; `false` = the name is taken by another one, and only the file was made.
async fn ensure_file(
    core: &Core,
    path: &Path,
    name: &str,
    role: Role,
    expect: Expect,
) -> Result<bool, FirstTokenError> {
    let file_error = |source| FirstTokenError::File { path: path.to_owned(), source };
    let (token, fresh) = match std::fs::read_to_string(path) {
        Ok(text) if auth::is_well_formed(text.trim()) => (text.trim().to_owned(), false),
        Ok(text) if !text.trim().is_empty() => {
            return Err(file_error(io::Error::new(
                io::ErrorKind::InvalidData,
                "it holds something that is not a token; remove it to have a new one made",
            )));
        }
        Ok(_) => (auth::mint().map_err(file_error)?, true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (auth::mint().map_err(file_error)?, true),
        Err(error) => return Err(file_error(error)),
    };
    // The file comes first: after a crash in between, the next start finds it and stores its hash.
    if fresh {
        write_private(path, &token).map_err(file_error)?;
        tracing::info!(file = %path.display(), name, "a token was made");
    } else {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(file_error)?;
    }
    let hash = auth::hash(&token);
    if is_stored(core, hash) {
        return Ok(true);
    }
    let spec = TokenSpec::platform(hash, role);
    let write = Write::Put {
        key: keys::token_key(name),
        id: core.mint_record_id(),
        expect,
        spec: serde_json::to_value(&spec).ok(),
        status: None,
    };
    match core.commit(vec![write]).await {
        Ok(_) => Ok(true),
        Err(CommitError::Store(StoreError::Conflict { .. })) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_stored(core: &Core, hash: Digest) -> bool {
    core.cache
        .list(Kind::Token, None, None)
        .iter()
        .any(|record| record.spec::<TokenSpec>().is_ok_and(|spec| spec.hash == hash))
}

/// Writes a file that its owner alone may read, whole or not at all.
fn write_private(path: &Path, token: &str) -> io::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    let part = path.with_extension("part");
    let _ = std::fs::remove_file(&part);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    std::fs::rename(&part, path)
}
