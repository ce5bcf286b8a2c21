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

/* A number of the running thread, from the address of its thread control block. */
static u32 this_thread(void) {
    u64 block;
    asm("mov %%fs:0, %0" : "=r"(block));
    return (u32)(block >> 4) | 1;
}

/* Locks a chain. False if this thread holds it, whom a signal has interrupted, or if the holder does not come back: it may have left
 * by a longjmp from a signal handler. */
static int lock(struct bucket *bucket) {
    u32 me = this_thread();
    for (int attempt = 0; attempt < 20000; attempt++) {
        u32 owner = 0;
        if (__atomic_compare_exchange_n(&bucket->owner, &owner, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        if (owner == me)
            return 0;
        if (attempt < 100)
            __builtin_ia32_pause();
        else
            system_call(24, 0, 0, 0, 0, 0, 0); /* sched_yield */
    }
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
    if (!lock(bucket))
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
    if (!lock(bucket))
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
    if (!lock(bucket))
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
    u64 unused[4];
    u64 consumed; /* the reader's, on a cache line of its own */
};

/* Submitting a record clears the first flag; discarding it also sets the second. Both are generated inline. */
#define BUSY 0x80000000u
#define DISCARD 0x40000000u

EXPORT void *ring_reserve(struct ring *ring, u64 size, u64 flags) {
    u64 need = (size + 15) & ~7ul;
    u64 head = __atomic_load_n(&ring->produced, __ATOMIC_RELAXED);
    u64 rest;
    if (flags || need > ring->size)
        return NULL;
    do {
        u64 to_end = ring->size - (head & (ring->size - 1));
        rest = need > to_end ? to_end : 0;
        if (head + rest + need - __atomic_load_n(&ring->consumed, __ATOMIC_ACQUIRE) > ring->size)
            return NULL;
    } while (!__atomic_compare_exchange_n(&ring->produced, &head, head + rest + need, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    u8 *data = (u8 *)ring + ring->data;
    if (rest)
        __atomic_store_n((u64 *)(data + (head & (ring->size - 1))), (u32)(rest - 8) | DISCARD, __ATOMIC_RELEASE);
    u8 *header = data + ((head + rest) & (ring->size - 1));
    __atomic_store_n((u64 *)header, (u32)size | BUSY, __ATOMIC_RELAXED);
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
#define HIDDEN (1ul << 32)
#define UNMAPPED (1ul << 33)
enum { NO_RULE = 0, UNSUPPORTED = 2, FROM_SP = 3, OFFSET_AT = 12 };
#define UNKNOWN_IDS 64
#define MARK 0x7ac00000u

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

/* The rule of a call of ours, from the instruction behind it: `nopl MARK + frame(%rax)`, see `program.rs`. */
static u64 rule_of_call(const u8 *next) {
    u32 frame = *(const u32 *)(next + 3) ^ MARK;
    if (next[0] != 0x0f || next[1] != 0x1f || next[2] != 0x80 || frame >> 18)
        return UNSUPPORTED;
    return HIDDEN | FROM_SP | (u64)frame << OFFSET_AT;
}

EXPORT u64 find_rule(u64 address, u32 tgid, const struct unwind *tables, u32 *unknown, u64 code, u64 code_end) {
    u8 next[8];
    if (address >= code && address < code_end - 16)
        return rule_of_call((const u8 *)address + 1);
    for (int attempt = 0; attempt < 8; attempt++) {
        u64 sequence = __atomic_load_n(&tables->sequence, __ATOMIC_ACQUIRE);
        u64 rule = rule_of(tables, tgid, address);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (sequence & 1 || __atomic_load_n(&tables->sequence, __ATOMIC_RELAXED) != sequence)
            continue;
        /* It may be code of ours elsewhere in the process. */
        if (!(u32)rule && read_checked(next, 7, (const u8 *)address + 1, tgid) && rule_of_call(next) != UNSUPPORTED)
            return rule_of_call(next);
        if (rule & UNMAPPED)
            __atomic_store_n(&unknown[tgid % UNKNOWN_IDS], tgid, __ATOMIC_RELAXED);
        return rule;
    }
    return NO_RULE;
}
