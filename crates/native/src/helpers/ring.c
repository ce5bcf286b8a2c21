/* The ring buffer. */

/* The buffer of records, in the kernel's format: a header of length and flags, the record, padding to 8. The reader sets what it has
 * read to zero, so that a header of zero is one that is not written yet. A record never wraps: a discarded one fills the end. */
struct ring { u64 size, data, state, own; }; /* offsets relative to the description itself, as of `struct map` */

struct ring_state {
    u64 produced;
    u64 unused[7];
    u64 consumed; /* the reader's, on a cache line of its own */
};

/* Submitting a record clears the first flag; discarding it also sets the second. Both are generated inline. */
#define BUSY 0x80000000u
#define DISCARD 0x40000000u

EXPORT void *ring_reserve(struct ring *ring, u64 size, u64 flags) {
    struct ring_state *state = (struct ring_state *)((u8 *)ring + ring->state);
    u64 need = (size + 15) & ~7ul, mask = (ring->size - 1) & ~7ul;
    u64 head = __atomic_load_n(&state->produced, __ATOMIC_RELAXED);
    u64 rest;
    u8 *data = (u8 *)ring + ring->data;
    int attempt = 0;
    if (flags || need > ring->size)
        return NULL;
    do {
        if (++attempt == MOST_CHANGES)
            return NULL;
        /* At most `size`, and within the data whatever `head` is. */
        u64 to_end = ring->size - (head & mask);
        rest = need > to_end ? to_end : 0;
        if (head + rest + need - __atomic_load_n(&state->consumed, __ATOMIC_ACQUIRE) > ring->size)
            return NULL;
        /* A page fault takes long enough for the thread to be killed in it: not between taking the room and writing the size. */
        (void)*(volatile u64 *)(data + (head & mask));
        (void)*(volatile u64 *)(data + ((head + rest) & mask));
    } while (!__atomic_compare_exchange_n(&state->produced, &head, head + rest + need, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    if (rest)
        __atomic_store_n((u64 *)(data + (head & mask)), (u32)(rest - 8) | DISCARD, __ATOMIC_RELEASE);
    u8 *header = data + ((head + rest) & mask);
    /* The reader passes over what a process has not finished when it ended. */
    u64 tgid = own_of(ring, ring->own)->tgid;
    __atomic_store_n((u64 *)header, (u32)size | BUSY | tgid << 32, __ATOMIC_RELAXED);
    return header + 8;
}

EXPORT i64 ring_output(struct ring *ring, const u8 *from, u64 size, u64 flags) {
    u8 *record = ring_reserve(ring, size, 0);
    if (!record)
        return -EAGAIN;
    copy(record, from, size);
    u32 *header = (u32 *)(record - 8);
    __atomic_store_n(header, *header & ~BUSY, __ATOMIC_RELEASE);
    return 0;
}
