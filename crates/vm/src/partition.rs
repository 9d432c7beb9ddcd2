//! Turns an ext4 image into a disk that the kernel can find by name.
//!
//! The kernel names disks in the order in which they answer, which varies. Without an initramfs, it can find a root
//! only by the identity of its partition. An ext4 file system does not use its first 1024 bytes, so a partition table
//! fits there. Its only partition begins where the disk begins.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::VmError;
use crate::guest::{unnamed, unnamed_failed};

/// The kernel's name of the partition: the disk's signature and the partition's number.
pub(crate) const UUID: &str = "524f4f53-01";

/// The same signature as stored on the disk, in little-endian order.
const SIGNATURE: [u8; 4] = [0x53, 0x4f, 0x4f, 0x52];

const SECTOR: usize = 512;

/// Position of the magic number in ext4's superblock.
const EXT4_MAGIC: usize = 0x438;

/// A partition table (MBR) for a disk of this size.
fn table(bytes: u64) -> [u8; SECTOR] {
    let sectors = u32::try_from(bytes / SECTOR as u64).unwrap_or(u32::MAX);
    let mut table = [0; SECTOR];
    table[440..444].copy_from_slice(&SIGNATURE);
    // Not bootable, no cylinders, type Linux, starting with sector 0.
    table[450] = 0x83;
    table[458..462].copy_from_slice(&sectors.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table
}

/// Writes the table into an image.
pub(crate) fn write(image: &mut File) -> std::io::Result<()> {
    let bytes = image.seek(SeekFrom::End(0))?;
    image.seek(SeekFrom::Start(0))?;
    image.write_all(&table(bytes))
}

/// The user's image: itself if it has the table, otherwise a copy without a name that has it.
pub(crate) fn with_table(path: &Path) -> Result<File, VmError> {
    let failed = |error: std::io::Error| VmError::file(path, &error);
    let mut image = File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    Read::by_ref(&mut image).take(2048).read_to_end(&mut head).map_err(failed)?;
    if head.get(EXT4_MAGIC..EXT4_MAGIC + 2) != Some(&[0x53, 0xef]) {
        return Err(VmError::Usage(format!(
            "{}: is not an image of an ext4 file system; make one with mke2fs -t ext4 -d FOLDER",
            path.display()
        )));
    }
    if head.get(440..444) == Some(&SIGNATURE) {
        return Ok(image);
    }
    let mut copy = unnamed()?;
    let fill = |image: &mut File, copy: &mut File| {
        image.seek(SeekFrom::Start(0))?;
        std::io::copy(image, copy)?;
        write(copy)
    };
    fill(&mut image, &mut copy).map_err(|error| unnamed_failed(&error))?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_name_is_the_tables_signature() {
        let number = u32::from_le_bytes(SIGNATURE);
        assert_eq!(format!("{number:08x}-01"), UUID);
        let table = table(1 << 20);
        assert_eq!(&table[454..462], &[0, 0, 0, 0, 0, 8, 0, 0], "sectors 0 to 2047");
    }

    #[test]
    fn an_image_given_by_hand_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root");
        let mut bytes = vec![0; 4096];
        std::fs::write(&path, &bytes).unwrap();
        let error = with_table(&path).unwrap_err().to_string();
        assert!(error.contains("not an image of an ext4 file system"), "{error}");
        bytes[EXT4_MAGIC..EXT4_MAGIC + 2].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(&path, &bytes).unwrap();
        let mut copy = with_table(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let mut head = [0; SECTOR];
        copy.seek(SeekFrom::Start(0)).unwrap();
        copy.read_exact(&mut head).unwrap();
        assert_eq!(head, table(4096));
    }
}
