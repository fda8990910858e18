//! The allocators: mimalloc for Rust's part, glibc's for RocksDB's, which allocates through C.

/// Statements and requests allocate many small things that live shortly and end on other threads than they began on.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Blocks of this many bytes and more are mapped by themselves, and given back when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// Keeps the blocks of memtables, of a megabyte each, out of glibc's heaps. It begins with [`MAPPED_BYTES`], too, but when
/// the first larger block is freed raises that to the size of the block, up to 32 MiB; what is freed from then on stays
/// with the process. A KV node that had flushed once took twice as much memory for the tenants made afterwards. What was
/// set is not raised.
///
/// To be called before there are other threads.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes two numbers and sets a parameter of the allocator, which is no one else's to look at: the process
    // has this one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}
