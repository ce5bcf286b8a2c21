/* Maps: arrays, hashes, and those that evict what was unused for the longest time.
 *
 * A map's description is part of the code, with all that says where the map is and how large it is. Everything else lies in memory that every
 * traced process of the session can write at any time. So an index from there is loaded once and compared with its limit before it is
 * used, and every loop over a chain ends by itself. A process that writes rubbish there gets wrong values, but no address outside of the
 * map is read or written, by it, by others, or by the tracer. */

enum { ARRAY = 2, PERCPU_ARRAY = 6, LRU_HASH = 9, LRU_PERCPU_HASH = 10 };

/* Offsets are relative to the description itself. See `description` of `layout.rs`. */
struct map {
    u32 kind, key_size, value_size, max_entries;
    u32 stride;   /* bytes from one entry or cell to the next */
    u32 cpus;     /* cells per entry */
    u32 mask;     /* number of buckets, a power of two, minus one */
    u32 entries;  /* entries of a hash: `max_entries`, and some for replacing */
    u64 cells;    /* offset of the cells of an array, or of the entries of a hash */
    u64 buckets;  /* offset of the buckets of a hash */
    u64 cpu_size; /* bytes from one CPU's cells of an array to the next CPU's */
    u64 state;    /* offset of the state of a hash */
    u64 own;      /* offset of the region */
};

/* What changes of a hash. */
struct map_state {
    u64 free;    /* top of the stack of free entries: index + 1 in the low half, a version in the high half */
    u32 fresh;   /* entries from this index on were never used */
    u32 used;
    u64 uses;    /* number of uses of entries so far, if the least recently used one is evicted */
    u64 refused; /* updates that failed since their chain was locked */
    u32 hand;    /* where the search for an entry to evict goes on */
    u32 unused;
};

/* A chain of entries ends with the number of its bucket, so that a reader notices that an entry was moved to another chain. */
#define END 0x80000000u

struct bucket {
    u32 first; /* index of an entry, or END and the bucket's number */
    u32 unused;
    u64 owner; /* thread that changes the chain, see `this_thread`; 0: none */
};

struct entry {
    u32 next, hash;
    u64 used; /* the map's `uses` at the last use; 0: the entry is free */
    u8 key[];
};

static u8 *at(struct map *map, u64 offset) { return (u8 *)map + offset; }
static struct map_state *state_of(struct map *map) { return (struct map_state *)at(map, map->state); }
static u32 load(const u32 *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

/* Whether a link leads to an entry: otherwise the chain ends there, or is damaged. */
static int is_entry(struct map *map, u32 index) { return index < map->entries; }

/* A chain is not what the rules of this file make of it: something else has written there. The tracer looks at its own word. */
static void note_damage(struct map *map) { own_of(map, map->own)->damaged = 1; }

static u32 round8(u32 size) { return (size + 7) & ~7u; }
static struct entry *entry_at(struct map *map, u32 index) {
    return (struct entry *)(at(map, map->cells) + (u64)index * map->stride);
}
static u8 *value_of(struct map *map, struct entry *entry, u32 cpu) {
    return entry->key + round8(map->key_size) + (map->cpus > 1 ? (u64)cpu * round8(map->value_size) : 0);
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

/* Entries that a search passes: chains are short, and few others lie on its way. In a damaged map, where chains may lead in a circle, it gives up
 * soon. */
static u32 patience_of_search(struct map *map) { return own_of(map, map->own)->damaged ? 64 : 4 * map->entries + 1000; }

/* The entry of a key. Takes no lock: where a chain leads into another one, which an entry that was freed and used again causes, it
 * begins anew. */
static struct entry *find(struct map *map, const u8 *key, u32 hash) {
    struct bucket *bucket = bucket_of(map, hash);
    u32 left = patience_of_search(map);
    for (int attempt = 0; attempt < 64; attempt++) {
        u32 index = load(&bucket->first);
        while (is_entry(map, index)) {
            struct entry *entry = entry_at(map, index);
            if (entry->hash == hash && equal(entry->key, key, map->key_size))
                return entry;
            index = load(&entry->next);
            if (--left == 0) {
                note_damage(map);
                return NULL;
            }
        }
        if (index == (END | (hash & map->mask)))
            return NULL;
    }
    return NULL;
}

static int evicts(struct map *map) { return map->kind == LRU_HASH || map->kind == LRU_PERCPU_HASH; }

static void use(struct map *map, struct entry *entry) {
    struct map_state *state = state_of(map);
    u64 now = __atomic_load_n(&state->uses, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&state->uses, now, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->used, now, __ATOMIC_RELAXED);
}

/* The running thread: its id in the high half, as far as it is known without a system call; otherwise that of its process. The low half is a
 * number made from the address of its thread control block. A child of fork(2) has the same address, so processes draw a number. */
static u64 this_thread(struct own *own) {
    u64 block;
    asm("mov %%fs:0, %0" : "=r"(block));
    u32 number = __atomic_load_n(&own->number, __ATOMIC_RELAXED);
    if (!number) {
        number = (u32)(__builtin_ia32_rdtsc() * 0x9e3779b9u) | 1;
        __atomic_store_n(&own->number, number, __ATOMIC_RELAXED);
    }
    u32 id = stored_thread_id(own);
    if (!id)
        id = own->tgid;
    if (!id)
        own->tgid = id = system_call(SYS_GETPID, 0, 0, 0, 0, 0, 0);
    return (u64)id << 32 | ((u32)(block >> 4) ^ number << 1) | 1;
}

/* Whether a thread has ended. The memory of one that has is not there, also before its parent has waited for it. */
static int has_ended(u64 thread) {
    u8 byte;
    struct { const void *at; u64 size; } local = {&byte, 1}, remote = {NULL, 1};
    return system_call(SYS_PROCESS_VM_READV, thread >> 32, (long)&local, 1, (long)&remote, 1, 0) == -ESRCH;
}

static void repair(struct map *map, struct bucket *bucket);

#define PATIENCE 100000
#define LITTLE_PATIENCE 200

/* Attempts that this process makes for a lock. The tracer has a budget for a while, whoever holds the locks. */
static int patience(struct own *own) { return own->frames_end ? (int)own->budget : PATIENCE; }

static void spend(struct own *own, int attempts) {
    own->budget = own->budget > (u32)attempts ? own->budget - attempts : 1;
}

/* Locks a chain. The lock of a thread that was killed is taken over. False if this thread holds it, whom a signal has interrupted, or if
 * the holder does not come back: it may have left by a longjmp from a signal handler, or is stopped. For him this process does not wait
 * long again. */
static int lock(struct map *map, struct bucket *bucket) {
    struct own *own = own_of(map, map->own);
    u64 me = this_thread(own), owner = 0;
    int most = patience(own);
    for (int attempt = 1; attempt <= most; attempt++) {
        owner = 0;
        if (__atomic_compare_exchange_n(&bucket->owner, &owner, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        if (owner == me)
            return 0;
        if (attempt % LITTLE_PATIENCE == 0 || attempt == most) {
            if (has_ended(owner) &&
                __atomic_compare_exchange_n(&bucket->owner, &owner, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
                repair(map, bucket);
                return 1;
            }
            if (owner == __atomic_load_n(&own->stuck, __ATOMIC_RELAXED)) {
                spend(own, attempt);
                return 0;
            }
        }
        if (attempt < 100)
            __builtin_ia32_pause();
        else
            system_call(SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0);
    }
    __atomic_store_n(&own->stuck, owner, __ATOMIC_RELAXED);
    spend(own, most);
    return 0;
}

/* Attempts to change a word that others change at the same time: one that is changed all the time is damage. */
#define MOST_CHANGES (1 << 20)

static void unlock(struct bucket *bucket) { __atomic_store_n(&bucket->owner, 0, __ATOMIC_RELEASE); }

/* Takes an entry that is not in use; NULL if there is none. */
static struct entry *take(struct map *map, u32 *index) {
    struct map_state *state = state_of(map);
    u64 top = __atomic_load_n(&state->free, __ATOMIC_ACQUIRE);
    for (int attempt = 0; (u32)top != 0 && attempt < MOST_CHANGES; attempt++) {
        *index = (u32)top - 1;
        if (!is_entry(map, *index)) {
            note_damage(map);
            return NULL;
        }
        u32 below = load(&entry_at(map, *index)->next) & ~END;
        u64 changed = ((top >> 32) + 1) << 32 | below;
        if (__atomic_compare_exchange_n(&state->free, &top, changed, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return entry_at(map, *index);
    }
    if (__atomic_load_n(&state->fresh, __ATOMIC_RELAXED) >= map->entries)
        return NULL;
    *index = __atomic_fetch_add(&state->fresh, 1, __ATOMIC_RELAXED);
    return is_entry(map, *index) ? entry_at(map, *index) : NULL;
}

static void give_back(struct map *map, struct entry *entry, u32 index) {
    struct map_state *state = state_of(map);
    __atomic_store_n(&entry->used, 0, __ATOMIC_RELAXED);
    u64 top = __atomic_load_n(&state->free, __ATOMIC_ACQUIRE);
    u64 changed;
    int attempt = 0;
    do {
        /* A reader that stands on this entry takes it for the end of another chain. */
        __atomic_store_n(&entry->next, END | (u32)top, __ATOMIC_RELEASE);
        changed = ((top >> 32) + 1) << 32 | (index + 1);
        if (++attempt == MOST_CHANGES)
            return note_damage(map);
    } while (!__atomic_compare_exchange_n(&state->free, &top, changed, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

/* The link of a locked chain that leads to an entry; NULL if the entry is not in the chain. */
static u32 *link_to(struct map *map, struct bucket *bucket, u32 wanted) {
    u32 *link = &bucket->first;
    for (u32 steps = 0; steps <= map->entries; steps++) {
        u32 index = load(link);
        if (index == wanted)
            return link;
        if (!is_entry(map, index)) {
            if (!(index & END))
                note_damage(map);
            return NULL;
        }
        link = &entry_at(map, index)->next;
    }
    note_damage(map);
    return NULL;
}

/* Removes an entry from its locked chain; false if it is not in the chain. */
static int unlink_entry(struct map *map, struct bucket *bucket, u32 index) {
    u32 *link = link_to(map, bucket, index);
    if (link)
        __atomic_store_n(link, load(&entry_at(map, index)->next), __ATOMIC_RELEASE);
    return link != NULL;
}

static u32 index_of(struct map *map, struct entry *entry) {
    return ((u8 *)entry - at(map, map->cells)) / map->stride;
}

/* Removes what a thread that was killed in an update has left in a locked chain: a value beside the one that was to replace it. An entry that
 * the thread had taken, and that is in no chain, is lost. Chains are short: more pairs than entries are damage. */
static void repair(struct map *map, struct bucket *bucket) {
    u32 pairs = 0;
    for (u32 index = load(&bucket->first); is_entry(map, index); index = load(&entry_at(map, index)->next)) {
        struct entry *entry = entry_at(map, index);
        for (u32 other = load(&entry->next), next; is_entry(map, other); other = next) {
            struct entry *later = entry_at(map, other);
            next = load(&later->next);
            if (later->hash == entry->hash && equal(later->key, entry->key, map->key_size)) {
                unlink_entry(map, bucket, other);
                give_back(map, later, other);
            }
            if (++pairs > map->entries)
                return note_damage(map);
        }
        if (++pairs > map->entries)
            return note_damage(map);
    }
}

/* Entries that are compared to find one to evict. A map with fewer evicts the least recently used one, a larger map one of the least
 * recently used. */
#define COMPARED 64

static void evict(struct map *map) {
    struct map_state *state = state_of(map);
    u32 compared = map->max_entries <= COMPARED ? map->entries : COMPARED;
    u32 victim = END;
    u64 least = ~0ul;
    for (u32 step = 0; step < map->entries && (step < compared || victim == END); step++) {
        u32 hand = __atomic_load_n(&state->hand, __ATOMIC_RELAXED);
        __atomic_store_n(&state->hand, hand < map->entries - 1 ? hand + 1 : 0, __ATOMIC_RELAXED);
        u32 index = is_entry(map, hand) ? hand : 0;
        u64 used = __atomic_load_n(&entry_at(map, index)->used, __ATOMIC_RELAXED);
        if (used && used < least)
            least = used, victim = index;
    }
    if (victim == END)
        return;
    struct bucket *bucket = bucket_of(map, load(&entry_at(map, victim)->hash));
    if (!lock(map, bucket))
        return;
    /* Somebody else may have removed it meanwhile. */
    if (unlink_entry(map, bucket, victim)) {
        give_back(map, entry_at(map, victim), victim);
        __atomic_fetch_sub(&state->used, 1, __ATOMIC_RELAXED);
    }
    unlock(bucket);
}

/* Puts a key into a locked chain, in front of `old`, which it replaces. */
static i64 put(struct map *map, struct bucket *bucket, struct entry *old, const u8 *key, u32 hash, const u8 *value, u32 cpu) {
    struct map_state *state = state_of(map);
    if (!old && __atomic_fetch_add(&state->used, 1, __ATOMIC_RELAXED) >= map->max_entries) {
        __atomic_fetch_sub(&state->used, 1, __ATOMIC_RELAXED);
        return -E2BIG;
    }
    u32 index;
    struct entry *entry = take(map, &index);
    if (!entry) {
        if (!old)
            __atomic_fetch_sub(&state->used, 1, __ATOMIC_RELAXED);
        return -E2BIG;
    }
    entry->hash = hash;
    copy(entry->key, key, map->key_size);
    for (u32 other = 0; map->cpus > 1 && other < map->cpus; other++)
        for (u32 i = 0; i < round8(map->value_size); i += 8)
            *(u64 *)(value_of(map, entry, other) + i) = 0;
    copy(value_of(map, entry, cpu), value, map->value_size);
    use(map, entry);
    __atomic_store_n(&entry->next, load(&bucket->first), __ATOMIC_RELEASE);
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
    if (!lock(map, bucket)) {
        __atomic_fetch_add(&state_of(map)->refused, 1, __ATOMIC_RELAXED);
        return -EBUSY;
    }
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
        __atomic_fetch_sub(&state_of(map)->used, 1, __ATOMIC_RELAXED);
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
        u32 index = load(&bucket->first);
        while (is_entry(map, index)) {
            struct entry *entry = entry_at(map, index);
            index = load(&entry->next);
            /* Entries that come and go meanwhile may be met again. */
            if (++visited > 2l * map->entries) {
                note_damage(map);
                return visited;
            }
            if (visit(map, entry->key, value_of(map, entry, cpu), data) || own_of(map, map->own)->damaged)
                return visited;
        }
    }
    return visited;
}

typedef u64 body(u64 index, u64 data);

EXPORT i64 repeat(u64 count, body *run, u64 data, u64 flags, struct own *own) {
    if (flags)
        return -EINVAL;
    if (count > 8 << 20)
        return -E2BIG;
    for (u64 index = 0; index < count; index++)
        if (run(index, data) || own->damaged)
            return index + 1;
    return count;
}
