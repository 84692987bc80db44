//! The content of the disk after the power fails: some of the unsynced writes are lost.
//!
//! - A file: each block of 4 KiB has, at random, a prefix of its own writes since the last sync. The sink's file keeps
//!   everything synced, and a prefix of the rest.
//! - The folder: it has a prefix of the changes since its last sync, because a journal keeps their order. A synced file
//!   may have lost its name.
//!
//! Example: a file is made, written and synced, and the folder is not. After the power failed, the file may be missing.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

const BLOCK: usize = 4_096;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// At an offset, or at the end.
    Write(Option<usize>, Vec<u8>),
    Truncate(usize),
    Sync,
    /// It failed. The system takes what was written as written: no later sync writes it.
    FailedSync,
}

/// A call of a process. The names of files are paths within its folder.
#[derive(Clone, Debug)]
pub(super) enum Call {
    File(String, Op),
    Create(String),
    Rename(String, String),
    Remove(String),
    SyncFolder(String),
}

/// A file: the content that is surely on the disk, and the later operations.
#[derive(Clone, Debug, Default)]
struct OnDisk {
    synced: Vec<u8>,
    since: Vec<Op>,
}

/// The files of a folder and of one subfolder. A file keeps its number when its name changes or is removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: Vec<OnDisk>,
    synced_names: BTreeMap<String, usize>,
    names: BTreeMap<String, usize>,
    /// The changes of `names` since their folder was synced: the names of each, with their file.
    since: Vec<Vec<(String, Option<usize>)>>,
}

fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(at, data) => {
            let at = at.unwrap_or(bytes.len());
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        Op::Truncate(len) => bytes.resize(*len, 0),
        Op::Sync | Op::FailedSync => {}
    }
}

impl OnDisk {
    fn note(&mut self, op: &Op) {
        match op {
            Op::Sync => self.since.drain(..).for_each(|op| apply(&mut self.synced, &op)),
            Op::FailedSync => self.since.clear(),
            op => self.since.push(op.clone()),
        }
    }

    fn all(mut self) -> Vec<u8> {
        self.note(&Op::Sync);
        self.synced
    }

    /// The sink's file.
    fn prefix(mut self, random: &mut fastrand::Rng) -> Vec<u8> {
        let least = self.synced.len();
        self.note(&Op::Sync);
        self.synced.truncate(random.usize(least..=self.synced.len()));
        self.synced
    }

    /// Applies to each block a random prefix of its own operations.
    fn blocks(mut self, random: &mut fastrand::Rng) -> Vec<u8> {
        let pieces: Vec<Op> = self.since.iter().flat_map(in_blocks).collect();
        let mut written: HashMap<usize, usize> = HashMap::new();
        for piece in &pieces {
            *written.entry(block_of(piece)).or_default() += 1;
        }
        let loses = random.u8(1..4);
        for left in written.values_mut() {
            *left = if random.u8(0..4) < loses { random.usize(0..=*left) } else { *left };
        }
        for piece in &pieces {
            let left = written.get_mut(&block_of(piece)).unwrap();
            if *left > 0 {
                *left -= 1;
                apply(&mut self.synced, piece);
            }
        }
        self.synced
    }
}

/// The block of a piece. A truncation counts as a separate block.
fn block_of(piece: &Op) -> usize {
    if let Op::Write(Some(at), _) = piece { at / BLOCK } else { usize::MAX }
}

fn in_blocks(op: &Op) -> Vec<Op> {
    let Op::Write(Some(at), data) = op else { return vec![op.clone()] };
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < data.len() {
        let to = data.len().min((at + from) / BLOCK * BLOCK + BLOCK - at);
        pieces.push(Op::Write(Some(at + from), data[from..to].to_vec()));
        from = to;
    }
    pieces
}

impl Disk {
    /// Has all files of a folder, on the disk.
    pub(super) fn of(folder: &Path) -> Self {
        let mut disk = Self::default();
        let of = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        for path in [of(folder), of(&folder.join("out"))].concat() {
            if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                disk.names.insert(name.to_owned(), disk.files.len());
                disk.files.push(OnDisk { synced: fs::read(&path).unwrap(), since: Vec::new() });
            }
        }
        disk.synced_names.clone_from(&disk.names);
        disk
    }

    pub(super) fn note(&mut self, call: &Call) {
        match call {
            Call::File(name, op) => {
                if let Some(file) = self.names.get(name) {
                    self.files[*file].note(op);
                }
            }
            Call::Create(name) => {
                if !self.names.contains_key(name) {
                    self.files.push(OnDisk::default());
                    self.change(vec![(name.clone(), Some(self.files.len() - 1))]);
                }
            }
            Call::Rename(from, to) => {
                self.change(vec![(to.clone(), self.names.get(from).copied()), (from.clone(), None)]);
            }
            Call::Remove(name) => self.change(vec![(name.clone(), None)]),
            Call::SyncFolder(folder) => {
                let is_in = |name: &str| name.rsplit_once('/').map_or("", |it| it.0) == folder;
                let (synced, since) = self.since.drain(..).partition(|names| is_in(&names[0].0));
                self.since = since;
                let synced: Vec<Vec<_>> = synced;
                for names in synced {
                    change(&mut self.synced_names, &names);
                }
            }
        }
    }

    /// Whether a file would still be there if the power failed now.
    pub(super) fn keeps(&self, name: &str) -> bool {
        self.synced_names.contains_key(name)
    }

    fn change(&mut self, names: Vec<(String, Option<usize>)>) {
        change(&mut self.names, &names);
        self.since.push(names);
    }

    /// The power fails: writes the remaining content into a folder. The files named by `is_kept` lose nothing.
    pub(super) fn lose(mut self, is_kept: impl Fn(&str) -> bool, folder: &Path, random: &mut fastrand::Rng) {
        let changes = random.usize(0..=self.since.len());
        for names in &self.since[..changes] {
            change(&mut self.synced_names, names);
        }
        for (name, file) in self.names.iter().filter(|(name, _)| is_kept(name)) {
            self.synced_names.insert(name.clone(), *file);
        }
        for (name, file) in self.synced_names.iter().filter(|(name, _)| !name.ends_with("-shm")) {
            let file = self.files[*file].clone();
            let bytes = match name.as_str() {
                name if is_kept(name) => file.all(),
                "out/delivered" => file.prefix(random),
                _ => file.blocks(random),
            };
            fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

fn change(names: &mut BTreeMap<String, usize>, changes: &[(String, Option<usize>)]) {
    for (name, file) in changes {
        match file {
            Some(file) => drop(names.insert(name.clone(), *file)),
            None => drop(names.remove(name)),
        }
    }
}

#[test]
fn a_block_has_seen_some_of_what_was_not_synced() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let mut file = OnDisk::default();
        file.note(&Op::Write(Some(0), vec![1; 3 * BLOCK]));
        file.note(&Op::Sync);
        file.note(&Op::Write(Some(10), vec![2; 2 * BLOCK]));
        let bytes = file.blocks(&mut random);
        assert_eq!((bytes[0], bytes[3 * BLOCK - 1]), (1, 1));
        seen.insert((bytes[10], bytes[BLOCK], bytes[2 * BLOCK]));
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn a_name_is_there_or_not_until_the_folder_is_synced() {
    let mut random = fastrand::Rng::with_seed(1);
    let name = |text: &str| text.to_owned();
    let mut disk = Disk::default();
    disk.note(&Call::Create(name("new")));
    disk.note(&Call::File(name("new"), Op::Write(None, b"text".to_vec())));
    disk.note(&Call::File(name("new"), Op::Sync));
    disk.note(&Call::Rename(name("new"), name("renamed")));
    let mut left = |disk: &Disk| -> Vec<Vec<String>> {
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            disk.clone().lose(|_| false, folder.path(), &mut random);
            let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
            seen.insert(
                entries
                    .map(|entry| {
                        assert_eq!(fs::read(entry.path()).unwrap(), b"text");
                        entry.file_name().into_string().unwrap()
                    })
                    .collect(),
            );
        }
        seen.into_iter().collect()
    };
    assert_eq!(left(&disk), [vec![], vec![name("new")], vec![name("renamed")]]);
    disk.note(&Call::SyncFolder(String::new()));
    assert_eq!(left(&disk), [[name("renamed")]]);
}
