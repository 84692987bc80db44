//! Refuses a store on a network file system (D9). Its locks may be lost, or may hold only on one host. SQLite's own
//! locks have the same problem.
//!
//! On Linux the kind of a file system comes from the table of mounts. On other systems nothing is refused.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::base::error::DeliveryError;

const MOUNTS: &str = "/proc/self/mountinfo";
const NETWORK: &[&str] = &[
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse.ceph",
    "fuse.davfs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "smb3",
    "smbfs",
];

/// Refuses a folder on a network file system. The caller has resolved symbolic links in `folder`.
///
/// # Errors
/// [`DeliveryError::Usage`], which names the kind of the file system.
pub(in crate::store) fn refuse_network(folder: &Path) -> Result<(), DeliveryError> {
    match fs::read(MOUNTS) {
        Ok(mounts) => refuse_network_by(folder, &mounts),
        Err(_) => Ok(()), // not on Linux, or /proc is hidden from this process
    }
}

fn refuse_network_by(folder: &Path, mounts: &[u8]) -> Result<(), DeliveryError> {
    let kind = kind_of(folder, mounts);
    if NETWORK.iter().any(|network| network.as_bytes() == kind) {
        return Err(DeliveryError::Usage(format!(
            "{} is on a network file system ({}), whose locks can't be relied on: use a local disk",
            folder.display(),
            String::from_utf8_lossy(kind)
        )));
    }
    Ok(())
}

/// The kind of the mount with the longest path that leads to the folder. If two paths are equally long, the later
/// mount hides the earlier one.
fn kind_of<'a>(folder: &Path, mounts: &'a [u8]) -> &'a [u8] {
    let (mut longest, mut kind) = (0, &b""[..]);
    for line in mounts.split(|&byte| byte == b'\n') {
        let Some((point, of_point)) = parsed(line) else { continue };
        let length = point.as_os_str().len();
        if folder.starts_with(&point) && length >= longest {
            (longest, kind) = (length, of_point);
        }
    }
    kind
}

/// Whether something is mounted at this path itself. The caller has resolved symbolic links in it.
pub(super) fn is_mount_point(path: &Path) -> bool {
    fs::read(MOUNTS).is_ok_and(|mounts| is_mount_point_by(path, &mounts))
}

fn is_mount_point_by(path: &Path, mounts: &[u8]) -> bool {
    mounts.split(|&byte| byte == b'\n').filter_map(parsed).any(|(point, _)| point == path)
}

/// The mount point and the kind in a line of the table: `36 35 98:0 / POINT rw,noatime shared:1 - KIND source options`.
fn parsed(line: &[u8]) -> Option<(PathBuf, &[u8])> {
    let mut fields = line.split(|&byte| byte == b' ');
    let point = fields.nth(4)?;
    fields.by_ref().find(|field| *field == b"-")?; // ends the optional fields
    Some((PathBuf::from(OsString::from_vec(unescaped(point))), fields.next()?))
}

/// The kernel writes a space, a tab, a line feed and a backslash as `\` and three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest_of_text @ ..]) = (first, after) {
            out.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = rest_of_text;
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    type Case = (&'static [u8], &'static [(&'static str, &'static str)]);

    const REFUSED: &[Case] = &[
        (b"/mnt/x", &[("/", "ext4"), ("/mnt/x", "nfs")]),
        (b"/mnt/x/deep/er", &[("/", "ext4"), ("/mnt/x", "nfs4")]),
        (b"/mnt/x", &[("/", "ext4"), ("/mnt/x", "cifs")]),
        (b"/mnt/x", &[("/mnt/x", "fuse.sshfs"), ("/", "ext4")]),
        (b"/mnt/a b", &[("/", "ext4"), ("/mnt/a\\040b", "nfs")]),
        (b"/mnt/a\\b", &[("/", "ext4"), ("/mnt/a\\134b", "nfs")]),
        (b"/mnt/a\tb\nc", &[("/", "ext4"), ("/mnt/a\\011b\\012c", "nfs")]),
        ("/mnt/\u{e9}".as_bytes(), &[("/", "ext4"), ("/mnt/\u{e9}", "nfs")]),
        (b"/mnt/x", &[("/", "ext4"), ("/mnt/x", "ext4"), ("/mnt/x", "smb3")]),
        (b"/mnt/x/y/z", &[("/", "ext4"), ("/mnt/x", "xfs"), ("/mnt/x/y", "ceph")]),
        (b"/x", &[("/", "nfs")]),
    ];
    const TAKEN: &[Case] = &[
        (b"/mnt/x", &[("/", "ext4"), ("/mnt", "xfs")]),
        (b"/mnt/xy", &[("/", "ext4"), ("/mnt/x", "nfs")]),
        (b"/mnt/x/y", &[("/", "ext4"), ("/mnt/x", "nfs"), ("/mnt/x/y", "tmpfs")]),
        (b"/mnt/x", &[("/", "nfs"), ("/mnt/x", "ext4")]),
        (b"/mnt/x", &[("/", "ext4"), ("/mnt/x", "nfs"), ("/mnt/x", "ext4")]),
        (b"/mnt", &[("/", "ext4"), ("/mnt/x", "nfs")]),
        (b"/mnt/x", &[("/", "fuse.gocryptfs"), ("/other", "nfs")]),
    ];

    fn refused(folder: &[u8], mounts: &[u8]) -> Option<String> {
        refuse_network_by(Path::new(OsStr::from_bytes(folder)), mounts).err().map(|error| error.to_string())
    }

    fn table(mounts: &[(&str, &str)]) -> Vec<u8> {
        let line = |(point, kind): &(&str, &str)| {
            format!("20 1 0:7 / {point} rw,relatime shared:7 - {kind} source:/x rw,addr=10.0.0.1\n")
        };
        mounts.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn a_network_file_system_is_refused__d9() {
        for (folder, mounts) in REFUSED {
            let text = refused(folder, &table(mounts)).unwrap_or_else(|| panic!("{mounts:?}"));
            assert!(text.contains("on a network file system (") && text.ends_with("use a local disk"), "{text}");
        }
    }

    #[test]
    fn a_local_file_system_is_taken__d9() {
        for (folder, mounts) in TAKEN {
            assert_eq!(refused(folder, &table(mounts)), None, "{mounts:?}");
        }
    }

    #[test]
    fn a_path_that_is_no_utf_8_is_compared_by_its_bytes__d9() {
        assert!(refused(b"/mnt/\xff", b"1 0 0:1 / /mnt/\xff rw - nfs x rw\n").is_some());
    }

    #[test]
    fn optional_fields_and_lines_that_are_cut_short_are_read__d9() {
        for optional in ["", "shared:1 master:2 propagate_from:3 "] {
            let text =
                format!("1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 /sub /mnt/x rw,noatime {optional}- nfs4 a - b:/c rw\n");
            assert!(refused(b"/mnt/x", text.as_bytes()).unwrap().contains("nfs4"));
        }
        for text in ["", "\n", "1 0 0:1 / /mnt/x", "1 0 0:1 / /mnt/x rw -", "\\", "1 0 0:1 / /mnt\\04 rw - nfs"] {
            assert_eq!(refused(b"/mnt/x", text.as_bytes()), None);
        }
    }

    #[test]
    fn a_mount_of_one_file_is_found_by_its_path__d9() {
        let mounts = table(&[("/", "ext4"), ("/data/a\\040store.db", "ext4"), ("/mnt", "xfs")]);
        for (path, is_found) in [("/data/a store.db", true), ("/data", false), ("/mnt/store.db", false)] {
            assert_eq!(is_mount_point_by(Path::new(path), &mounts), is_found, "{path}");
        }
    }

    #[test]
    fn the_table_of_this_machine_is_read() {
        refuse_network(&std::env::temp_dir().canonicalize().unwrap()).unwrap();
    }
}
