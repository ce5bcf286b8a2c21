/* The BPF helpers that are too long to be generated inline. The code runs in the traced process, within one of its calls: it is
 * position-independent, calls nothing, has no data of its own and uses general registers only. Maps lie in memory that the process
 * and the tracer share; see `layout.rs`, which describes the same structures.
 *
 * The arguments are those of the BPF helper, then `cpu`. Errors are negative numbers, as in the kernel. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

#define EXPORT __attribute__((visibility("default")))
#define NULL ((void *)0)

enum { ENOENT = 2, E2BIG = 7, EAGAIN = 11, EFAULT = 14, EBUSY = 16, EEXIST = 17, EINVAL = 22 };
enum { ARRAY = 2, PERCPU_ARRAY = 6, LRU_HASH = 9, LRU_PERCPU_HASH = 10 };

/* Offsets are relative to the map itself. */
struct map {
    u32 kind, key_size, value_size, max_entries;
    u32 stride;   /* bytes from one entry or cell to the next */
    u32 cpus;     /* cells per entry */
    u64 cells;    /* offset of the cells of an array, or of the entries of a hash */
    u64 buckets;  /* offset of the buckets of a hash */
    u64 cpu_size; /* bytes from one CPU's cells of an array to the next CPU's */
    u64 free;     /* top of the stack of free entries: index + 1 in the low half, a version in the high half */
    u32 fresh;    /* entries from this index on were never used */
    u32 used;
    u32 mask;     /* number of buckets, a power of two, minus one */
    u32 spare;    /* entries beyond `max_entries`, for replacing */
    u64 uses;     /* number of uses of entries so far, if the least recently used one is evicted */
    u32 hand;     /* where the search for an entry to evict goes on */
    u32 stuck;    /* owner of a chain who did not come back */
    u64 place;    /* offset in the region */
};

/* A chain of entries ends with the number of its bucket, so that a reader notices that an entry was moved to another chain. */
#define END 0x80000000u

struct bucket {
    u32 first; /* index of an entry, or END and the bucket's number */
    u32 owner; /* thread that changes the chain; 0: none */
};

struct entry {
    u32 next, hash;
    u64 used; /* the map's `uses` at the last use; 0: the entry is free */
    u8 key[];
};

static u8 *at(struct map *map, u64 offset) { return (u8 *)map + offset; }
static u32 round8(u32 size) { return (size + 7) & ~7u; }
static struct entry *entry_at(struct map *map, u32 index) {
    return (struct entry *)(at(map, map->cells) + (u64)index * map->stride);
}
static u8 *value_of(struct map *map, struct entry *entry, u32 cpu) {
    return entry->key + round8(map->key_size) + (map->cpus > 1 ? (u64)cpu * round8(map->value_size) : 0);
}

static void copy(u8 *to, const u8 *from, u64 size) {
    u64 i = 0;
    for (; i + 8 <= size; i += 8)
        *(u64 *)(to + i) = *(const u64 *)(from + i);
    for (; i < size; i++)
        to[i] = from[i];
}

static int equal(const u8 *a, const u8 *b, u32 size) {
    u32 i = 0;
    for (; i + 8 <= size; i += 8)
        if (*(const u64 *)(a + i) != *(const u64 *)(b + i))
            return 0;
    for (; i < size; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

static u32 hash_of(const u8 *key, u32 size) {
    u64 hash = 0x9e3779b97f4a7c15ul ^ size;
    u32 i = 0;
    for (; i + 8 <= size; i += 8) {
        hash = (hash ^ *(const u64 *)(key + i)) * 0xff51afd7ed558ccdul;
        hash ^= hash >> 32;
    }
    for (; i < size; i++)
        hash = (hash ^ key[i]) * 0x100000001b3ul;
    hash ^= hash >> 29;
    hash *= 0xc4ceb9fe1a85ec53ul;
    return hash >> 32;
}

static struct bucket *bucket_of(struct map *map, u32 hash) {
    return (struct bucket *)at(map, map->buckets) + (hash & map->mask);
}

/* The entry of a key. Takes no lock: where a chain leads into another one, which an entry that was freed and used again causes, it
 * begins anew. */
static struct entry *find(struct map *map, const u8 *key, u32 hash) {
    struct bucket *bucket = bucket_of(map, hash);
    for (int attempt = 0; attempt < 64; attempt++) {
        u32 index = __atomic_load_n(&bucket->first, __ATOMIC_ACQUIRE);
        for (u32 steps = 0; !(index & END) && steps <= map->max_entries; steps++) {
            struct entry *entry = entry_at(map, index);
            if (entry->hash == hash && equal(entry->key, key, map->key_size))
                return entry;
            index = __atomic_load_n(&entry->next, __ATOMIC_ACQUIRE);
        }
        if (index == (END | (hash & map->mask)))
            return NULL;
    }
    return NULL;
}

static int evicts(struct map *map) { return map->kind == LRU_HASH || map->kind == LRU_PERCPU_HASH; }

static void use(struct map *map, struct entry *entry) {
    u64 now = __atomic_load_n(&map->uses, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&map->uses, now, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->used, now, __ATOMIC_RELAXED);
}

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}

/* Words of the process alone, at the start of the region; see `layout.rs`. In a child of fork(2) they are zero. */
struct own { u64 unused; u32 tgid, tid, cpu, unused2, number; };

static struct own *own_of(void *description, u64 place) { return (struct own *)((u8 *)description - place); }

/* A number of the running thread, from the address of its thread control block. A child of fork(2) has the same address, so processes
 * draw a number. */
static u32 this_thread(struct own *own) {
    u64 block;
    asm("mov %%fs:0, %0" : "=r"(block));
    u32 number = __atomic_load_n(&own->number, __ATOMIC_RELAXED);
    if (!number) {
        number = (u32)(__builtin_ia32_rdtsc() * 0x9e3779b9u) | 1;
        __atomic_store_n(&own->number, number, __ATOMIC_RELAXED);
    }
    return ((u32)(block >> 4) ^ number << 1) | 1;
}

#define PATIENCE 20000
#define LITTLE_PATIENCE 200

/* Locks a chain. False if this thread holds it, whom a signal has interrupted, or if the holder does not come back: it may have left
 * by a longjmp from a signal handler, or its process was killed. For him nobody waits long again. */
static int lock(struct map *map, struct bucket *bucket) {
    u32 me = this_thread(own_of(map, map->place)), owner = 0;
    for (int attempt = 0; attempt < PATIENCE; attempt++) {
        owner = 0;
        if (__atomic_compare_exchange_n(&bucket->owner, &owner, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        if (owner == me)
            return 0;
        if (attempt > LITTLE_PATIENCE && owner == __atomic_load_n(&map->stuck, __ATOMIC_RELAXED))
            return 0;
        if (attempt < 100)
            __builtin_ia32_pause();
        else
            system_call(24, 0, 0, 0, 0, 0, 0); /* sched_yield */
    }
    __atomic_store_n(&map->stuck, owner, __ATOMIC_RELAXED);
    return 0;
}

static void unlock(struct bucket *bucket) { __atomic_store_n(&bucket->owner, 0, __ATOMIC_RELEASE); }

/* Takes an entry that is not in use; NULL if there is none. */
static struct entry *take(struct map *map, u32 *index) {
    u64 top = __atomic_load_n(&map->free, __ATOMIC_ACQUIRE);
    while ((u32)top != 0) {
        *index = (u32)top - 1;
        u32 below = __atomic_load_n(&entry_at(map, *index)->next, __ATOMIC_RELAXED) & ~END;
        u64 changed = ((top >> 32) + 1) << 32 | below;
        if (__atomic_compare_exchange_n(&map->free, &top, changed, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return entry_at(map, *index);
    }
    if (__atomic_load_n(&map->fresh, __ATOMIC_RELAXED) >= map->max_entries + map->spare)
        return NULL;
    *index = __atomic_fetch_add(&map->fresh, 1, __ATOMIC_RELAXED);
    return *index < map->max_entries + map->spare ? entry_at(map, *index) : NULL;
}

static void give_back(struct map *map, struct entry *entry, u32 index) {
    __atomic_store_n(&entry->used, 0, __ATOMIC_RELAXED);
    u64 top = __atomic_load_n(&map->free, __ATOMIC_ACQUIRE);
    u64 changed;
    do {
        /* A reader that stands on this entry takes it for the end of another chain. */
        __atomic_store_n(&entry->next, END | (u32)top, __ATOMIC_RELEASE);
        changed = ((top >> 32) + 1) << 32 | (index + 1);
    } while (!__atomic_compare_exchange_n(&map->free, &top, changed, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

/* Removes an entry from its locked chain. */
static void unlink_entry(struct map *map, struct bucket *bucket, u32 index) {
    u32 *link = &bucket->first;
    while (*link != index)
        link = &entry_at(map, *link)->next;
    __atomic_store_n(link, entry_at(map, index)->next, __ATOMIC_RELEASE);
}

static u32 index_of(struct map *map, struct entry *entry) {
    return ((u8 *)entry - at(map, map->cells)) / map->stride;
}

/* Entries that are compared to find one to evict. A map with fewer evicts the least recently used one, a larger map one of the least
 * recently used. */
#define COMPARED 64

static void evict(struct map *map) {
    u32 entries = map->max_entries + map->spare;
    u32 compared = map->max_entries <= COMPARED ? entries : COMPARED;
    struct entry *oldest = NULL;
    u64 least = ~0ul;
    for (u32 step = 0; step < entries && (step < compared || !oldest); step++) {
        u32 hand = __atomic_load_n(&map->hand, __ATOMIC_RELAXED);
        __atomic_store_n(&map->hand, hand + 1 < entries ? hand + 1 : 0, __ATOMIC_RELAXED);
        struct entry *entry = entry_at(map, hand < entries ? hand : 0);
        u64 used = __atomic_load_n(&entry->used, __ATOMIC_RELAXED);
        if (used && used < least)
            least = used, oldest = entry;
    }
    if (!oldest)
        return;
    u32 hash = oldest->hash, victim = index_of(map, oldest);
    struct bucket *bucket = bucket_of(map, hash);
    if (!lock(map, bucket))
        return;
    /* Somebody else may have removed it meanwhile. */
    u32 index = bucket->first;
    while (!(index & END) && index != victim)
        index = entry_at(map, index)->next;
    if (index == victim) {
        unlink_entry(map, bucket, victim);
        give_back(map, oldest, victim);
        __atomic_fetch_sub(&map->used, 1, __ATOMIC_RELAXED);
    }
    unlock(bucket);
}

/* Puts a key into a locked chain, in front of `old`, which it replaces. */
static i64 put(struct map *map, struct bucket *bucket, struct entry *old, const u8 *key, u32 hash, const u8 *value, u32 cpu) {
    if (!old && __atomic_fetch_add(&map->used, 1, __ATOMIC_RELAXED) >= map->max_entries) {
        __atomic_fetch_sub(&map->used, 1, __ATOMIC_RELAXED);
        return -E2BIG;
    }
    u32 index;
    struct entry *entry = take(map, &index);
    if (!entry) {
        if (!old)
            __atomic_fetch_sub(&map->used, 1, __ATOMIC_RELAXED);
        return -E2BIG;
    }
    entry->hash = hash;
    copy(entry->key, key, map->key_size);
    for (u32 other = 0; map->cpus > 1 && other < map->cpus; other++)
        for (u32 i = 0; i < round8(map->value_size); i += 8)
            *(u64 *)(value_of(map, entry, other) + i) = 0;
    copy(value_of(map, entry, cpu), value, map->value_size);
    use(map, entry);
    __atomic_store_n(&entry->next, bucket->first, __ATOMIC_RELEASE);
    __atomic_store_n(&bucket->first, index, __ATOMIC_RELEASE);
    if (old) {
        u32 replaced = index_of(map, old);
        unlink_entry(map, bucket, replaced);
        give_back(map, old, replaced);
    }
    return 0;
}

static int is_array(struct map *map) { return map->kind == ARRAY || map->kind == PERCPU_ARRAY; }

static u8 *cell_of(struct map *map, u32 index, u32 cpu) {
    if (index >= map->max_entries)
        return NULL;
    return at(map, map->cells) + (u64)index * map->stride + (map->cpus > 1 ? cpu * map->cpu_size : 0);
}

EXPORT void *map_lookup(struct map *map, const u8 *key, u64 a, u64 b, u64 c, u32 cpu) {
    if (is_array(map))
        return cell_of(map, *(const u32 *)key, cpu);
    struct entry *entry = find(map, key, hash_of(key, map->key_size));
    if (!entry)
        return NULL;
    if (evicts(map))
        use(map, entry);
    return value_of(map, entry, cpu);
}

EXPORT void *map_lookup_percpu(struct map *map, const u8 *key, u32 cpu) {
    return cpu < map->cpus ? map_lookup(map, key, 0, 0, 0, cpu) : NULL;
}

static i64 update_entry(struct map *map, const u8 *key, const u8 *value, u64 flags, u32 hash, u32 cpu) {
    /* A word is replaced in one store; a larger value by a new entry, so that nobody reads half of it. The lock keeps the entry from
     * being deleted and used for another key meanwhile. */
    int in_place = map->cpus > 1 || map->value_size <= 8;
    struct bucket *bucket = bucket_of(map, hash);
    if (!lock(map, bucket))
        return -EBUSY;
    struct entry *entry = find(map, key, hash);
    i64 result;
    if (entry && flags == 1)
        result = -EEXIST;
    else if (!entry && flags == 2)
        result = -ENOENT;
    else if (entry && in_place) {
        copy(value_of(map, entry, cpu), value, map->value_size);
        use(map, entry);
        result = 0;
    } else
        result = put(map, bucket, entry, key, hash, value, cpu);
    unlock(bucket);
    return result;
}

/* flags: BPF_ANY 0, BPF_NOEXIST 1, BPF_EXIST 2 */
EXPORT i64 map_update(struct map *map, const u8 *key, const u8 *value, u64 flags, u64 a, u32 cpu) {
    if (flags > 2)
        return -EINVAL;
    if (is_array(map)) {
        u8 *cell = cell_of(map, *(const u32 *)key, cpu);
        if (!cell)
            return -E2BIG;
        if (flags == 1)
            return -EEXIST;
        copy(cell, value, map->value_size);
        return 0;
    }
    u32 hash = hash_of(key, map->key_size);
    i64 result = update_entry(map, key, value, flags, hash, cpu);
    for (int attempt = 0; attempt < 8 && result == -E2BIG && evicts(map); attempt++) {
        evict(map);
        result = update_entry(map, key, value, flags, hash, cpu);
    }
    return result;
}

EXPORT i64 map_delete(struct map *map, const u8 *key) {
    if (is_array(map))
        return -EINVAL;
    u32 hash = hash_of(key, map->key_size);
    struct bucket *bucket = bucket_of(map, hash);
    if (!find(map, key, hash))
        return -ENOENT;
    if (!lock(map, bucket))
        return -EBUSY;
    struct entry *entry = find(map, key, hash);
    if (entry) {
        u32 index = index_of(map, entry);
        unlink_entry(map, bucket, index);
        give_back(map, entry, index);
        __atomic_fetch_sub(&map->used, 1, __ATOMIC_RELAXED);
    }
    unlock(bucket);
    return entry ? 0 : -ENOENT;
}

typedef u64 visitor(struct map *map, const u8 *key, u8 *value, u64 data);

EXPORT i64 for_each(struct map *map, visitor *visit, u64 data, u64 flags, u64 a, u32 cpu) {
    i64 visited = 0;
    if (flags)
        return -EINVAL;
    if (is_array(map)) {
        for (u32 index = 0; index < map->max_entries; index++) {
            visited++;
            if (visit(map, (const u8 *)&index, cell_of(map, index, cpu), data))
                break;
        }
        return visited;
    }
    for (u32 number = 0; number <= map->mask; number++) {
        struct bucket *bucket = (struct bucket *)at(map, map->buckets) + number;
        u32 index = __atomic_load_n(&bucket->first, __ATOMIC_ACQUIRE);
        for (u32 steps = 0; !(index & END) && steps <= map->max_entries; steps++) {
            struct entry *entry = entry_at(map, index);
            index = __atomic_load_n(&entry->next, __ATOMIC_ACQUIRE);
            visited++;
            if (visit(map, entry->key, value_of(map, entry, cpu), data))
                return visited;
        }
    }
    return visited;
}

typedef u64 body(u64 index, u64 data);

EXPORT i64 repeat(u64 count, body *run, u64 data, u64 flags) {
    if (flags)
        return -EINVAL;
    if (count > 8 << 20)
        return -E2BIG;
    for (u64 index = 0; index < count; index++)
        if (run(index, data))
            return index + 1;
    return count;
}

/* The buffer of records, in the kernel's format: a header of length and flags, the record, padding to 8. The reader sets what it has
 * read to zero, so that a header of zero is one that is not written yet. A record never wraps: a discarded one fills the end. */
struct ring {
    u64 produced, size, data, lost;
    u64 place; /* offset in the region */
    u64 unused[3];
    u64 consumed; /* the reader's, on a cache line of its own */
};

/* Submitting a record clears the first flag; discarding it also sets the second. Both are generated inline. */
#define BUSY 0x80000000u
#define DISCARD 0x40000000u

EXPORT void *ring_reserve(struct ring *ring, u64 size, u64 flags) {
    u64 need = (size + 15) & ~7ul;
    u64 head = __atomic_load_n(&ring->produced, __ATOMIC_RELAXED);
    u64 rest;
    u8 *data = (u8 *)ring + ring->data;
    if (flags || need > ring->size)
        return NULL;
    do {
        u64 to_end = ring->size - (head & (ring->size - 1));
        rest = need > to_end ? to_end : 0;
        if (head + rest + need - __atomic_load_n(&ring->consumed, __ATOMIC_ACQUIRE) > ring->size)
            return NULL;
        /* A page fault takes long enough for the thread to be killed in it: not between taking the room and writing the size. */
        (void)*(volatile u64 *)(data + (head & (ring->size - 1)));
        (void)*(volatile u64 *)(data + ((head + rest) & (ring->size - 1)));
    } while (!__atomic_compare_exchange_n(&ring->produced, &head, head + rest + need, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    if (rest)
        __atomic_store_n((u64 *)(data + (head & (ring->size - 1))), (u32)(rest - 8) | DISCARD, __ATOMIC_RELEASE);
    u8 *header = data + ((head + rest) & (ring->size - 1));
    /* The reader passes over what a process has not finished when it ended. */
    u64 tgid = own_of(ring, ring->place)->tgid;
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

/* Memory of the generated code itself: maps, records, its stack. */
EXPORT i64 read_own(u8 *to, u64 size, const u8 *from) {
    copy(to, from, size);
    return 0;
}

EXPORT i64 read_own_string(u8 *to, u64 size, const u8 *from) {
    if (!size)
        return 0;
    u64 length = 0;
    while (length < size - 1 && from[length])
        to[length] = from[length], length++;
    to[length] = 0;
    return length + 1;
}

enum { SYS_CLOCK_GETTIME = 228, SYS_PRCTL = 157, SYS_PROCESS_VM_READV = 310, PR_GET_NAME = 16 };

EXPORT u64 clock_ns(u64 clock) {
    struct { u64 seconds, ns; } time = {0, 0};
    system_call(SYS_CLOCK_GETTIME, clock, (long)&time, 0, 0, 0, 0);
    return time.seconds * 1000000000ul + time.ns;
}

EXPORT i64 get_comm(u8 *to, u64 size) {
    u8 name[16] = {0};
    u64 i;
    system_call(SYS_PRCTL, PR_GET_NAME, (long)name, 0, 0, 0, 0);
    for (i = 0; i < size && i < sizeof name; i++)
        to[i] = name[i];
    for (; i < size; i++)
        to[i] = 0;
    return 0;
}

/* The frames of the detour and of the dispatch lie above this one, at least this many bytes: the stack is there. */
#define FRAMES_ABOVE 256

/* Reads memory of the process that may not be there: the kernel answers with an error where a load would be a fault. Arguments of the
 * traced function are on the stack, on pages that are there. */
static int read_checked(u8 *to, u64 size, const u8 *from, u32 tgid) {
    u64 here = (u64)__builtin_frame_address(0);
    u64 end = (here + FRAMES_ABOVE) | 4095;
    if ((u64)from > here && (u64)from <= end && size <= end - (u64)from + 1) {
        copy(to, from, size);
        return 1;
    }
    struct { const void *at; u64 size; } local = {to, size}, remote = {from, size};
    return system_call(SYS_PROCESS_VM_READV, tgid, (long)&local, 1, (long)&remote, 1, 0) == (long)size;
}

EXPORT i64 read_user(u8 *to, u64 size, const u8 *from, u64 a, u64 b, u32 tgid) {
    if (!size || read_checked(to, size, from, tgid))
        return 0;
    for (u64 i = 0; i < size; i++)
        to[i] = 0;
    return -EFAULT;
}

/* Reads parts that end with a page: what follows the text need not be there. As in the kernel, the bytes of the buffer behind the text
 * stay as they are. */
EXPORT i64 read_user_string(u8 *to, u64 size, const u8 *from, u64 a, u64 b, u32 tgid) {
    u8 part[256];
    u64 length = 0;
    if (!size)
        return 0;
    while (length < size) {
        u64 count = 4096 - ((u64)(from + length) & 4095);
        if (count > sizeof part)
            count = sizeof part;
        if (count > size - length)
            count = size - length;
        if (!read_checked(part, count, from + length, tgid)) {
            for (u64 i = 0; i < size; i++)
                to[i] = 0;
            return -EFAULT;
        }
        for (u64 i = 0; i < count; i++)
            if (!(to[length++] = part[i]))
                return length;
    }
    to[size - 1] = 0;
    return size;
}

/* Calls whose return is traced. The return address of a call is replaced by a stub. There is one stub per return address, and no stub is
 * ever used for another one: whatever happens to a call (longjmp, exceptions, coroutines, vfork), the stub leads back. What the
 * programs keep from the entry to the return is in a slot. A slot that is lost costs an event and nothing else.
 *
 * Slots are found by the place of the return address on the stack: no other running call has the same, whatever thread it belongs to.
 * A call that was left by longjmp or an exception leaves its slot behind. The next call with that place takes it; or a call that finds
 * no free slot, if the stub's address is not at that place any more. See `returns.rs`, which describes the same structures. */
#define STUB_SIZE 16
#define AFTER_CALL 4  /* a stub begins with a call: the address that is on the stack */
#define STUB_CALL 0xf02454ffu /* call *-16(%rsp) */
#define STUB_PUSH 0x68        /* push of 32 bits */
#define ADDRESS_PROBES 16
#define SLOT_PROBES 8
#define CHECKS 2
#define SLOT_SESSIONS 5
#define MAX_TAIL_CALLS 8

struct returns {
    u64 stubs;     /* offsets relative to this structure */
    u64 addresses; /* u64 per stub: its return address; 0: the stub is free */
    u64 slots;
    u64 more;      /* sessions that do not fit in the slots */
    u64 more_size; /* bytes of them per slot */
    u64 lost;      /* u64: calls without a slot */
    u32 address_mask, slot_mask;
    u64 hand;      /* which slots are examined next */
    u64 replaced;  /* slots that were taken from calls that had been left */
};

/* In front of the first stub, for stack walks of other sessions. */
struct stubs_header { u64 magic, addresses; /* relative to the header */ };
#define STUBS_MAGIC 0x3173627574737463ul /* "ctstubs1" */

struct slot {
    u64 place; /* bits 48 to 63: a version; then the place of the return address, 0: free; bit 0: in preparation */
    u32 stub, mask;
    u64 record;
    u64 sessions[SLOT_SESSIONS];
};

/* The frame of a dispatch, and the record of a function, as far as they are used here. */
struct words { u64 record, mask, sessions[]; };
struct record { u64 self, address, moved, leave, sessions; };

#define PLACE 0xfffffffffff8ul
#define PREPARED 1ul
#define VERSION (1ul << 48)
#define NO_STUB ~0u

static u64 *address_of(struct returns *returns, u32 stub) { return (u64 *)((u8 *)returns + returns->addresses) + stub; }
static u64 stub_address(struct returns *returns, u32 stub) { return (u64)returns + returns->stubs + (u64)stub * STUB_SIZE; }
static struct slot *slot_at(struct returns *returns, u64 place, u32 probe) {
    /* Neighbours on a stack are neighbours here, and stacks are apart. */
    u64 number = (place >> 4) + (place >> 18) * 0x9e37;
    return (struct slot *)((u8 *)returns + returns->slots) + ((number + probe) & returns->slot_mask);
}

/* The stub to whose call an address on the stack belongs; NO_STUB: it is an address of the program. */
static u32 stub_at(struct returns *returns, u64 address) {
    u64 offset = address - stub_address(returns, 0) - AFTER_CALL;
    int is_stub = offset <= (u64)returns->address_mask * STUB_SIZE && offset % STUB_SIZE == 0;
    return is_stub ? offset / STUB_SIZE : NO_STUB;
}

static u32 stub_for(struct returns *returns, u64 address) {
    u32 hash = (address * 0x9e3779b97f4a7c15ul) >> 40;
    for (u32 probe = 0; probe < ADDRESS_PROBES; probe++) {
        u32 stub = (hash + probe) & returns->address_mask;
        u64 *cell = address_of(returns, stub);
        u64 known = __atomic_load_n(cell, __ATOMIC_RELAXED);
        if (!known && __atomic_compare_exchange_n(cell, &known, address, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return stub;
        if (known == address)
            return stub;
    }
    return NO_STUB;
}

/* Number of calls that ended with a jump to another traced function, as an address on the stack shows. */
static u32 tail_calls(struct returns *returns, u64 address) {
    u32 count = 0;
    for (u32 stub; count <= MAX_TAIL_CALLS && (stub = stub_at(returns, address)) != NO_STUB; count++)
        address = *address_of(returns, stub);
    return count;
}

/* Whether the call of a slot has been left: neither the stub's address is on the stack, nor what is there directly before and after. */
static int is_left(struct returns *returns, u64 place, u32 stub) {
    u64 word;
    struct { void *at; u64 size; } local = {&word, 8}, remote = {(void *)place, 8};
    u32 self = system_call(39, 0, 0, 0, 0, 0, 0); /* getpid */
    /* The stack of a thread that has ended may not be there. */
    if (system_call(310, self, (long)&local, 1, (long)&remote, 1, 0) != 8)
        return 1;
    for (u32 count = 0; count <= MAX_TAIL_CALLS; count++) {
        u32 next = stub_at(returns, word);
        if (word == stub || next == stub || word == *address_of(returns, stub))
            return 0;
        if (next == NO_STUB)
            return 1;
        word = *address_of(returns, next);
    }
    return 0;
}

static int take_slot(struct slot *slot, u64 word, u64 place) {
    u64 taken = ((word & ~(VERSION - 1)) + VERSION) | place | PREPARED;
    return __atomic_compare_exchange_n(&slot->place, &word, taken, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* A slot for a call, in preparation. `replaces`: no other call with this place is running. */
static struct slot *slot_for(struct returns *returns, u64 place, int replaces) {
    for (u32 probe = 0; probe < SLOT_PROBES; probe++) {
        struct slot *slot = slot_at(returns, place, probe);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_RELAXED), known = word & (VERSION - 1);
        if (known && !(replaces && (known & PLACE) == place))
            continue;
        if (take_slot(slot, word, place)) {
            if (known)
                __atomic_fetch_add(&returns->replaced, 1, __ATOMIC_RELAXED);
            return slot;
        }
    }
    u64 hand = __atomic_fetch_add(&returns->hand, CHECKS, __ATOMIC_RELAXED);
    for (u32 check = 0; check < CHECKS; check++) {
        struct slot *slot = slot_at(returns, place, (hand + check) % SLOT_PROBES);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_ACQUIRE);
        if (word & PREPARED || !is_left(returns, word & PLACE, __atomic_load_n(&slot->stub, __ATOMIC_RELAXED)))
            continue;
        if (take_slot(slot, word, place)) {
            __atomic_fetch_add(&returns->replaced, 1, __ATOMIC_RELAXED);
            return slot;
        }
    }
    return NULL;
}

static u64 *session_of(struct returns *returns, struct slot *slot, u64 number) {
    if (number < SLOT_SESSIONS)
        return &slot->sessions[number];
    u64 index = slot - (struct slot *)((u8 *)returns + returns->slots);
    return (u64 *)((u8 *)returns + returns->more + index * returns->more_size) + number - SLOT_SESSIONS;
}

/* Remembers a call, whose return address is at `at`, and returns the stub that executes it; 0 if there is no room. */
EXPORT u64 call_enters(struct returns *returns, u64 *at, struct words *words) {
    u64 place = (u64)at & (VERSION - 1), address = *at;
    struct record *record = (struct record *)words->record;
    u32 above = tail_calls(returns, address);
    u32 stub = above <= MAX_TAIL_CALLS && !((u64)at & 7) ? stub_for(returns, address) : NO_STUB;
    struct slot *slot = stub != NO_STUB ? slot_for(returns, place, above == 0) : NULL;
    if (!slot) {
        __atomic_fetch_add((u64 *)((u8 *)returns + returns->lost), 1, __ATOMIC_RELAXED);
        return 0;
    }
    slot->mask = words->mask;
    slot->record = words->record;
    for (u64 number = 0; number < record->sessions; number++)
        *session_of(returns, slot, number) = words->sessions[number];
    __atomic_store_n(&slot->stub, stub, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->place, slot->place & ~PREPARED, __ATOMIC_RELEASE);
    return stub_address(returns, stub);
}

/* A call has returned to a stub, whose number is at the place of the return address. Restores the address, and returns the record of
 * the function; 0 if the call's slot was lost. */
EXPORT u64 call_returns(struct returns *returns, u64 *at, struct words *words) {
    u64 place = (u64)at & (VERSION - 1);
    u32 stub = *at;
    *at = *address_of(returns, stub);
    for (u32 probe = 0; probe < SLOT_PROBES; probe++) {
        struct slot *slot = slot_at(returns, place, probe);
        u64 word = __atomic_load_n(&slot->place, __ATOMIC_RELAXED);
        if ((word & (VERSION - 1)) != place || slot->stub != stub)
            continue;
        struct record *record = (struct record *)slot->record;
        words->record = slot->record;
        words->mask = slot->mask;
        for (u64 number = 0; number < record->sessions; number++)
            words->sessions[number] = *session_of(returns, slot, number);
        __atomic_store_n(&slot->place, word & ~(VERSION - 1), __ATOMIC_RELEASE);
        return words->record;
    }
    __atomic_fetch_add((u64 *)((u8 *)returns + returns->lost), 1, __ATOMIC_RELAXED);
    return 0;
}

/* Reads a word of the stack for a walk, which goes upwards. What was read is kept in `buffer` up to the end of its page: a walk takes
 * a system call for each page instead of one for each word. */
struct read_buffer {
    u64 start, end;
    u8 bytes[4096];
};

EXPORT i64 read_stack(struct read_buffer *buffer, u64 address, u64 *to, u64 a, u64 b, u32 tgid) {
    u64 behind = (address | 4095) + 1;
    if (address < buffer->start || address + 8 > buffer->end) {
        if (behind - address < 8)
            return read_checked((u8 *)to, 8, (const u8 *)address, tgid) ? 0 : -EFAULT;
        buffer->start = buffer->end = 0;
        if (!read_checked(buffer->bytes, behind - address, (const u8 *)address, tgid))
            return -EFAULT;
        buffer->start = address;
        buffer->end = behind;
    }
    *to = *(u64 *)(buffer->bytes + (address - buffer->start));
    return 0;
}

/* Unwind tables; see `unwind.rs`. */
struct unwind {
    u64 sequence;
    u32 processes, unused[13];
    struct { u32 tgid, areas; u64 at; } process[4096];
    struct { u64 at, rows; } table[8192];
};

struct area {
    u64 start, end, bias;
    u32 table, unused;
};

#define UNWIND_SIZE (512ul << 20)
/* `wire::unwind` */
#define UNMAPPED (1ul << 33)
#define NO_RULE 0ul
#define UNKNOWN_IDS 64

/* Number of the first `count` words, `stride` words apart, that are at most `limit`, in ascending order. */
static u64 at_most(const u64 *words, u64 count, u64 stride, u64 limit, u64 mask) {
    u64 low = 0, high = count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if ((words[middle * stride] & mask) <= limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const void *part(const struct unwind *tables, u64 at, u64 count, u64 size) {
    return at <= UNWIND_SIZE && count <= (UNWIND_SIZE - at) / size ? (const u8 *)tables + at : NULL;
}

/* The rule of an address as the tables are now, or UNMAPPED. */
static u64 rule_of(const struct unwind *tables, u32 tgid, u64 address) {
    u64 count = tables->processes <= 4096 ? tables->processes : 0;
    u64 number = at_most((const u64 *)tables->process, count, 2, tgid, 0xffffffff);
    if (!number || tables->process[number - 1].tgid != tgid)
        return UNMAPPED;
    u64 areas = tables->process[number - 1].areas;
    const struct area *area = part(tables, tables->process[number - 1].at, areas, sizeof *area);
    u64 before = area ? at_most(&area->start, areas, sizeof *area / 8, address, ~0ul) : 0;
    if (!before || address >= area[before - 1].end)
        return UNMAPPED;
    area += before - 1;
    u64 in_file = address - area->bias;
    if (!area->table || area->table >= 8192 || in_file >= 0xffffffff)
        return NO_RULE;
    u64 rows = tables->table[area->table].rows;
    const u64 *row = part(tables, tables->table[area->table].at, rows, sizeof *row);
    u64 last = row ? at_most(row, rows, 1, in_file << 32 | 0xffffffff, ~0ul) : 0;
    return last ? row[last - 1] & 0xffffffff : NO_RULE;
}

/* A rule that was not read while the tracer wrote. */
static u64 consistent_rule(const struct unwind *tables, u32 tgid, u64 address) {
    for (int attempt = 0; attempt < 8; attempt++) {
        u64 sequence = __atomic_load_n(&tables->sequence, __ATOMIC_ACQUIRE);
        u64 rule = rule_of(tables, tgid, address);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(sequence & 1) && __atomic_load_n(&tables->sequence, __ATOMIC_RELAXED) == sequence)
            return rule;
    }
    return NO_RULE;
}

/* The return address of a call through a stub of another region: of another session, or of functions far away. 0: it is none. */
static u64 replaced_elsewhere(u64 address, u32 tgid) {
    struct __attribute__((packed)) { u32 call; u8 push; u32 number; } stub;
    struct stubs_header header;
    u64 start = address - AFTER_CALL, original;
    if (!read_checked((u8 *)&stub, sizeof stub, (const u8 *)start, tgid) || stub.call != STUB_CALL || stub.push != STUB_PUSH)
        return 0;
    u64 header_at = start - (u64)stub.number * STUB_SIZE - sizeof header;
    if (!read_checked((u8 *)&header, sizeof header, (const u8 *)header_at, tgid) || header.magic != STUBS_MAGIC)
        return 0;
    u64 cell = header_at + header.addresses + 8ul * stub.number;
    return read_checked((u8 *)&original, sizeof original, (const u8 *)cell, tgid) ? original : 0;
}

/* Finds the rule of a frame, whose instruction pointer is at `ip`: an address of the program replaces that of a stub. The rule is that of
 * the instruction `back` bytes before. */
EXPORT u64 find_rule(u64 *ip, u64 back, u32 tgid, const struct unwind *tables, u32 *unknown, struct returns *returns) {
    for (u32 count = 0;; count++) {
        for (u32 stub, calls = 0; calls <= MAX_TAIL_CALLS && (stub = stub_at(returns, *ip)) != NO_STUB; calls++)
            *ip = *address_of(returns, stub);
        u64 rule = consistent_rule(tables, tgid, *ip - back);
        u64 original = (u32)rule || count == MAX_TAIL_CALLS ? 0 : replaced_elsewhere(*ip, tgid);
        if (!original) {
            if (rule & UNMAPPED)
                __atomic_store_n(&unknown[tgid % UNKNOWN_IDS], tgid, __ATOMIC_RELAXED);
            return rule;
        }
        *ip = original;
    }
}
