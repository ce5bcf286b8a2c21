/* Walks of the stack: what is on it, and the rules of the unwind tables. */

/* glibc puts a thread's control block on top of the memory of its stack; behind the block is the rest of its last page, or two. */
#define BEHIND_BLOCK 8192
/* Size of a control block, as far as it is searched. */
#define BLOCK 2304
/* A stack is not larger. */
#define LARGEST_STACK (1ul << 32)
/* In `stack_at`: this C library does not tell. */
#define NOWHERE 1

/* Whether a stack of this address and size has this control block on top. */
static int is_stack_of(u64 start, u64 size, u64 block) {
    u64 end = start + size;
    return !((start | size) & 4095) && size && start < block && block < end && end - block <= BEHIND_BLOCK;
}

/* What a walk has copied. */
struct read_buffer {
    u64 start, end;
    u64 words[512];
};

/* What a walk knows of the memory that it reads. It is on the stack of the program, where no other process can write. */
struct walk_memory {
    u64 may_vanish;
    u64 last_bytes[8]; /* of pages that are there */
};

/* Where the words are that tell a thread's stack, from its control block on. They are looked for once. */
static u32 stack_at(struct own *own, u64 block, struct read_buffer *buffer, u32 tgid) {
    const u64 *words = buffer->words;
    u32 at = own->stack_at;
    if (at)
        return at;
    at = NOWHERE;
    buffer->start = buffer->end = 0;
    if (read_checked((u8 *)words, BLOCK, (const u8 *)block, tgid))
        for (u32 i = 1; i + 1 < BLOCK / 8 && at == NOWHERE; i++)
            if (is_stack_of(words[i], words[i + 1], block))
                at = 8 * i;
    return own->stack_at = at;
}

/* A word of this thread's control block. */
static u64 block_word(u64 at) {
    u64 word;
    asm("movq %%fs:(%1), %0" : "=r"(word) : "r"(at));
    return word;
}

/* The address of this thread's control block; 0: it is not known that there is one, as while the program is still being loaded. */
EXPORT u64 thread_pointer(const struct own *own) { return stored_thread_id(own) ? block_word(0) : 0; }

/* The end of what is surely mapped above `here` on this thread's stack; 0: not known, as on the stack of a coroutine. */
static u64 end_of_stack(struct own *own, u64 here, struct read_buffer *buffer, u32 tgid) {
    if (here > own->stack_start && here < own->stack_end)
        return own->stack_end;
    u32 id = stored_thread_id(own);
    /* The first thread's stack is not the C library's. */
    if (!id || id == own->tgid)
        return 0;
    /* A control block begins with its address, and has it in its third word. Memory of another kind is not followed. */
    u64 block = block_word(0);
    if (block != block_word(16) || block <= here || block - here > LARGEST_STACK)
        return 0;
    u32 at = stack_at(own, block, buffer, tgid);
    if (at == NOWHERE)
        return 0;
    u64 start = block_word(at);
    return is_stack_of(start, block_word(at + 8), block) && start <= here ? block : 0;
}

/* Whether a page can be loaded from. The kernel reads a set of signals before it refuses to do something unknown with it: that is ten times as
 * fast as a copy. */
static int is_page_there(struct walk_memory *memory, u64 address) {
    u64 last_byte = address | 4095, *known = &memory->last_bytes[(address >> 12) % 8];
    if (*known == last_byte)
        return 1;
    if (system_call(SYS_RT_SIGPROCMASK, -1, address & ~4095ul, 0, 8, 0, 0) != -EINVAL)
        return 0;
    *known = last_byte;
    return 1;
}

/* Whether a word of the thread's own memory can be loaded: its frames and its state stay while it is here. */
static int is_loadable(struct read_buffer *buffer, struct walk_memory *memory, u64 address, struct own *own, u32 tgid) {
    u64 here = (u64)__builtin_frame_address(0);
    if (memory->may_vanish)
        return 0;
    u64 stack_end = end_of_stack(own, here, buffer, tgid);
    if (address > here && stack_end && address <= stack_end - 8)
        return 1;
    return (address & 4095) <= 4088 && is_page_there(memory, address);
}

/* Reads a word for a walk. What may vanish is copied by the kernel, which answers with an error where a load would be a fault; the page of what
 * was read is kept in `buffer`: a walk takes a system call for each page instead of one for each word. */
EXPORT i64 read_word(struct read_buffer *buffer, u64 address, u64 *to, struct walk_memory *memory, struct own *own, u32 tgid) {
    if (is_loadable(buffer, memory, address, own, tgid)) {
        *to = *(u64 *)address;
        return 0;
    }
    /* The buffer is in memory that other processes can write: what it says is loaded once, and never leads out of its words. */
    u64 start = __atomic_load_n(&buffer->start, __ATOMIC_RELAXED), end = __atomic_load_n(&buffer->end, __ATOMIC_RELAXED);
    u64 page = address & ~4095ul;
    if (address < start || address + 8 > end || address - start > sizeof buffer->words - 8) {
        if (page + 4096 - address < 8)
            return read_checked((u8 *)to, 8, (const u8 *)address, tgid) ? 0 : -EFAULT;
        buffer->start = buffer->end = 0;
        if (!read_checked((u8 *)buffer->words, 4096, (const u8 *)page, tgid))
            return -EFAULT;
        buffer->start = start = page;
        buffer->end = page + 4096;
    }
    *to = *(u64 *)((u8 *)buffer->words + (address - start));
    return 0;
}

/* Unwind tables; see `unwind.rs`. */
struct unwind {
    u64 sequence;
    u32 processes[2], unused[12];
    struct { u32 tgid, areas; u64 at; } process[2][4096];
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

/* The rule of an address by a list of processes, or UNMAPPED. */
static u64 rule_of(const struct unwind *tables, u32 list, u32 tgid, u64 address) {
    u64 count = tables->processes[list] <= 4096 ? tables->processes[list] : 0;
    u64 number = at_most((const u64 *)tables->process[list], count, 2, tgid, 0xffffffff);
    if (!number || tables->process[list][number - 1].tgid != tgid)
        return UNMAPPED;
    u64 areas = tables->process[list][number - 1].areas;
    const struct area *area = part(tables, tables->process[list][number - 1].at, areas, sizeof *area);
    u64 before = area ? at_most(&area->start, areas, sizeof *area / 8, address, ~0ul) : 0;
    if (!before || address >= area[before - 1].end)
        return UNMAPPED;
    area += before - 1;
    u64 in_file = address - area->bias;
    if (!area->table || area->table >= 8192 || in_file >= 0xffffffff)
        return NO_RULE;
    /* The tracer writes it last. */
    u64 rows = __atomic_load_n(&tables->table[area->table].rows, __ATOMIC_ACQUIRE);
    const u64 *row = part(tables, tables->table[area->table].at, rows, sizeof *row);
    u64 last = row ? at_most(row, rows, 1, in_file << 32 | 0xffffffff, ~0ul) : 0;
    return last ? row[last - 1] & 0xffffffff : NO_RULE;
}

/* A rule of lists and areas that were in use when all of them had been read. */
static u64 consistent_rule(const struct unwind *tables, u32 tgid, u64 address) {
    for (int attempt = 0; attempt < 8; attempt++) {
        u64 sequence = __atomic_load_n(&tables->sequence, __ATOMIC_ACQUIRE);
        u64 rule = rule_of(tables, sequence & 1, tgid, address);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&tables->sequence, __ATOMIC_RELAXED) == sequence)
            return rule;
    }
    return NO_RULE;
}

/* Rules that were found lately: stacks repeat, and the tables are large and far from the processor. All threads use them, without locks: the
 * first word is that of the address and the second one together, so that halves of two writers are no rule. */
#define RULES_AT 4096
#define RULE_BITS 9
struct kept_rule { u64 check, sequence_and_rule; };

static u64 kept_rule(struct returns *returns, const struct unwind *tables, u32 tgid, u64 address) {
    u64 sequence = __atomic_load_n(&tables->sequence, __ATOMIC_ACQUIRE), key = address ^ tgid * 0x9e3779b97f4a7c15ul;
    struct kept_rule *kept = (struct kept_rule *)((u8 *)returns + RULES_AT) + (address * 0x9e3779b97f4a7c15ul >> (64 - RULE_BITS));
    u64 value = __atomic_load_n(&kept->sequence_and_rule, __ATOMIC_RELAXED);
    if ((__atomic_load_n(&kept->check, __ATOMIC_RELAXED) ^ value) == key && value >> 32 == (u32)sequence)
        return (u32)value;
    u64 rule = consistent_rule(tables, tgid, address);
    if (rule != NO_RULE && !(rule >> 32)) {
        value = sequence << 32 | rule;
        __atomic_store_n(&kept->sequence_and_rule, value, __ATOMIC_RELAXED);
        __atomic_store_n(&kept->check, value ^ key, __ATOMIC_RELAXED);
    }
    return rule;
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

/* Tells the tracer that nothing is known of a process. */
EXPORT u64 tell_unknown(u32 tgid, u32 *unknown) {
    __atomic_store_n(&unknown[tgid % UNKNOWN_IDS], tgid, __ATOMIC_RELAXED);
    return 0;
}

/* Finds the rule of a frame, whose instruction pointer is at `ip`: an address of the program replaces that of a stub. The rule is that of
 * the instruction `back` bytes before. */
EXPORT u64 find_rule(u64 *ip, u64 back, u32 tgid, const struct unwind *tables, u32 *unknown, struct returns *returns) {
    for (u32 count = 0;; count++) {
        for (u32 stub, calls = 0; calls <= MAX_TAIL_CALLS && (stub = stub_at(returns, *ip)) != NO_STUB; calls++)
            *ip = *address_of(returns, stub);
        u64 rule = kept_rule(returns, tables, tgid, *ip - back);
        u64 original = (u32)rule || count == MAX_TAIL_CALLS ? 0 : replaced_elsewhere(*ip, tgid);
        if (!original) {
            if (rule & UNMAPPED)
                tell_unknown(tgid, unknown);
            return rule;
        }
        *ip = original;
    }
}
