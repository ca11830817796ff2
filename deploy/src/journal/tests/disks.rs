//! Every disk keeps the contract of the seam.

use super::fault_disk::FaultDisk;
use super::*;
use std::io::ErrorKind;

fn keeps_the_contract(disk: &dyn Disk) {
    let mut buffer = [0; 8];
    assert_eq!(disk.segments().unwrap(), []);
    assert_eq!(disk.read_at(1, 0, &mut buffer).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.write_at(1, 0, b"x").unwrap_err().kind(), ErrorKind::NotFound);
    for segment in [2, 1] {
        disk.create(segment).unwrap();
    }
    disk.write_at(1, 0, b"hello").unwrap();
    disk.write_at(1, 5, b" world").unwrap();
    disk.write_at(1, 0, b"J").unwrap();
    disk.sync(1).unwrap();
    disk.sync_directory().unwrap();
    assert_eq!(disk.segments().unwrap(), [(1, 11), (2, 0)], "ascending");
    assert_eq!((disk.read_at(1, 0, &mut buffer).unwrap(), &buffer), (8, b"Jello wo"));
    assert_eq!(disk.read_at(1, 8, &mut buffer).unwrap(), 3, "short at the end only");
    assert_eq!(disk.read_at(1, 99, &mut buffer).unwrap(), 0);
    disk.truncate(1, 4).unwrap();
    disk.write_at(1, 4, b"y").unwrap();
    assert_eq!((disk.read_at(1, 0, &mut buffer).unwrap(), &buffer[..5]), (5, &b"Jelly"[..]));
    disk.remove(2).unwrap();
    assert_eq!(disk.segments().unwrap(), [(1, 5)]);
    assert!(disk.place(1).starts_with(&disk.directory()) && disk.place(1).ends_with("/0000000001.segment"));
}

#[test]
fn every_disk_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("0000000009.segment.bak"), b"not a segment").unwrap();
    std::fs::write(directory.path().join("7.segment"), b"not one either").unwrap();
    keeps_the_contract(&FileDisk::open(directory.path()).unwrap());
    keeps_the_contract(&MemoryDisk::default());
    keeps_the_contract(&FaultDisk::default());
}

#[test]
fn a_segment_is_made_once_and_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(directory.path().join("journal")).unwrap();
    disk.create(1).unwrap();
    assert_eq!(disk.create(1).unwrap_err().kind(), ErrorKind::AlreadyExists);
    for (name, mode) in [("journal", 0o700), ("journal/lock", 0o600), ("journal/0000000001.segment", 0o600)] {
        let found = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}");
    }
}

#[test]
fn more_segments_than_files_may_be_open_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(directory.path()).unwrap();
    for segment in 1..=200 {
        disk.create(segment).unwrap();
        disk.write_at(segment, 0, &segment.to_le_bytes()).unwrap();
    }
    for segment in (1..=200).rev().chain(1..=200) {
        let mut bytes = [0; 4];
        assert_eq!((disk.read_at(segment, 0, &mut bytes).unwrap(), u32::from_le_bytes(bytes)), (4, segment));
    }
}
